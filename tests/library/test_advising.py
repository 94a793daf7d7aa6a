"""`fairlead.advise`: scores that a reader can compute again, and sentences that follow from them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import fairlead
from fairlead.cli.main import main
from fairlead.library.advising import SURPRISES, weights_of
from fairlead.model.errors import InputError
from fairlead.studies.compare.advice import ASPECTS

CLUSTER, FIELD = "v100:2,k80:2", ("fifo", "las", "gavel", "gavel-sjf", "oef-coop")
COLUMNS = ("jct_mean_s", "jct_p99_s", "makespan_s", "ftf_max", "latency_max")  # of the table of runs, by aspect


@pytest.fixture(scope="module")
def trace() -> fairlead.Trace:
    return fairlead.generate(CLUSTER, jobs=12, load=2.0, tenants=2, durations="gavel", width={1: 3, 2: 1}, seed=3)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def advice(trace: fairlead.Trace, state: Path) -> fairlead.Advice:
    return fairlead.advise(CLUSTER, trace=trace, policies=FIELD, seeds="0..1", length_error=0.2, workers=1, state=state)


def test_scores_are_geometric_means_of_what_policies_have_of_the_best(advice: fairlead.Advice) -> None:
    runs = list(advice.comparison.runs.rows())
    logs: dict[str, list[float]] = {name: [] for name in FIELD}
    for seed in {run["seed"] for run in runs}:
        for column in COLUMNS:
            plus = 1.0 if column == "latency_max" else 0.0
            values = {run["policy"]: run[column] + plus for run in runs if run["seed"] == seed}
            for name in FIELD:
                logs[name].append(math.log(values[name] / min(values.values())))

    scores = {score.policy: score.total for score in advice.scores.ranked}
    assert scores == pytest.approx({name: math.exp(math.fsum(of) / len(of)) for name, of in logs.items()})
    assert list(scores.values()) == sorted(scores.values())
    assert len(set(scores.values())) > 1


def test_the_recommended_policy_is_the_best_or_as_good_and_knows_less(advice: fairlead.Advice) -> None:
    best, ranked = advice.recommended, advice.scores.ranked

    assert best.total <= ranked[0].total * 1.01
    assert all(len(best.knows) <= len(score.knows) for score in advice.alike)
    assert advice.recommended_blind is not None
    assert advice.recommended_blind.policy in [score.policy for score in ranked if not score.knows]
    assert advice.reasons[0].startswith(f"Use {best.policy}: ")


def test_a_weight_changes_the_advice(trace: fairlead.Trace, state: Path, advice: fairlead.Advice) -> None:
    """With all weight on one number, the score is that number."""
    alone = {aspect.name: 0.0 for aspect in ASPECTS} | {"fairness": 2.0}
    by_fairness = fairlead.advise(
        CLUSTER,
        trace=trace,
        policies=FIELD,
        care=alone,
        seeds="0..1",
        length_error=0.2,
        workers=1,
        state=state,
        surprises=False,
    )

    assert by_fairness.surprises == []
    assert {score.policy: score.total for score in by_fairness.scores.ranked} == pytest.approx(
        {score.policy: score.behind["fairness"] for score in advice.scores.ranked}
    )


def test_a_surprise_is_the_same_comparison_in_another_world(
    trace: fairlead.Trace, state: Path, advice: fairlead.Advice
) -> None:
    assert len(advice.surprises) == len(SURPRISES) + 1
    what, changed = next(iter(SURPRISES.items()))
    again = fairlead.advise(
        CLUSTER,
        trace=trace,
        policies=FIELD,
        seeds="0..1",
        workers=1,
        state=state,
        surprises=False,
        **changed,
    )

    surprise = advice.surprises[0]
    assert (surprise.what, surprise.best) == (what, again.scores.ranked[0].policy)
    assert surprise.behind == pytest.approx(
        again.scores.of(advice.recommended.policy).total / again.scores.ranked[0].total
    )


def test_a_policy_that_leaves_jobs_unfinished_is_not_ranked(state: Path) -> None:
    """One that cannot be used is named instead of hidden."""

    @fairlead.policy(level="grants")
    def idle(view: object, memory: None) -> tuple[object, None]:
        """Grants nothing."""
        from fairlead.model.allocation import NO_GRANTS

        return NO_GRANTS, None

    advice = fairlead.advise(
        CLUSTER, generate={"load": 1.0}, jobs=4, policies=["fifo", idle], seeds=0, workers=1, state=state
    )

    assert advice.recommended.policy == "fifo"
    assert list(advice.scores.left_out) == ["idle"]
    assert any(reason.startswith("Not ranked: idle") for reason in advice.reasons)


@pytest.mark.parametrize(
    ("care", "said"),
    [
        ({"fairnes": 1}, 'did you mean "fairness"'),
        (["tail=much"], '--care tail: "much" is not a number of at least 0'),
        ({"tail": -1}, "not a number of at least 0"),
        ({aspect.name: 0 for aspect in ASPECTS}, "leave one above 0"),
    ],
)
def test_a_wrong_weight_is_refused(care: dict[str, float] | list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        weights_of(care)


def test_a_policy_that_no_service_can_run_takes_no_part() -> None:
    with pytest.raises(InputError, match="hare plans single tasks, which no service can run"):
        fairlead.advise(CLUSTER, generate="defaults", policies="fifo,hare")


def test_the_command_prints_a_table_and_sentences_in_eighty_columns(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["advise", "--cluster", CLUSTER, "--generate", "load=1.5", "--jobs", "6", "--policies", "fifo,gavel-sjf"]
    words += ["--seeds", "0", "--workers", "1", "--state", str(state), "--care", "tail=2"]
    printed = []
    for output in ("table", "json"):
        monkeypatch.setattr("sys.argv", ["fairlead", *words, "-o", output])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        printed.append(capsys.readouterr().out)

    document = json.loads(printed[1])
    assert document["weights"]["tail"] == 2.0
    assert {score["policy"] for score in document["scores"]} == {"fifo", "gavel-sjf"}
    for reason in document["reasons"]:
        assert reason in " ".join(printed[0].split())
    assert max(map(len, printed[0].splitlines())) <= 80
