"""A comparison whose trace lacks facts: they are filled in several ways, and the answer says which conclusions hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead.cli.main import main
from fairlead.model.errors import InputError
from fairlead.studies.compare.fillings import filled_in

CLUSTER = "v100:2,p100:2,k80:2"
WAYS = 4


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve jobs with durations, and without models, types and tenants of their own."""
    path = tmp_path_factory.mktemp("traces") / "week.csv"
    rows = [f"2020-01-01 00:{minute:02}:00,{600 * (1 + minute % 5)},1,0,vc" for minute in range(12)]
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def filled(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> fairlead.Comparison:
    state = tmp_path_factory.mktemp("state")
    return fairlead.compare(CLUSTER, "fifo,las,srtf", trace=trace, fillings=WAYS, workers=1, state=state)


def test_a_trace_says_of_every_job_what_it_lacks(trace: Path) -> None:
    read = fairlead.read_trace(trace)

    assert set(read.filled.values()) == {("model", "type")}
    assert filled_in(read) == ["the model of 12 of 12 jobs", "the GPU type of the duration of 12 of 12 jobs"]
    assert set(fairlead.read_trace(trace, reference="v100").filled.values()) == {("model",)}


def test_a_conclusion_counts_the_ways_in_which_it_holds(filled: fairlead.Comparison) -> None:
    runs = filled.runs
    best: dict[str, int] = {}
    for seed in range(WAYS):
        mean_s = {one["policy"]: one["jct_mean_s"] for one in runs.rows() if one["seed"] == seed}
        first = min(mean_s, key=mean_s.__getitem__)
        best[first] = best.get(first, 0) + 1

    (((_, found)),) = filled.held_conclusions()
    jct = next(one for one in found if one.metric == "jct_mean")

    assert len({one["jct_mean_s"] for one in runs.where(policy="fifo").rows()}) == WAYS  # the ways differ
    assert {jct.best: jct.holds, **jct.otherwise} == best
    assert (jct.ways, sum(best.values())) == (WAYS, WAYS)
    assert f"{jct.best} is best in {jct.holds} of {WAYS} ways to fill in" in jct.sentence
    assert "the model of 12 of 12 jobs" in " ".join(filled.answer.assumptions)
    assert set(filled.conclusions["metric"]) >= {"jct_mean", "ftf_max"}


def test_types_of_durations_are_further_ways(trace: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"fillings": 2, "fill_types": ["v100", "k80"], "workers": 1, "state": tmp_path}
    both = fairlead.compare(CLUSTER, "fifo,srtf", trace=trace, **options)

    ((labels, found),) = both.held_conclusions()

    assert [setting.labels["reference"] for setting in both.settings] == ["v100", "k80"]
    assert labels == {"trace": str(trace), "cluster": CLUSTER}
    assert {one.ways for one in found} == {4}


def test_the_command_prints_what_holds(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--cluster", CLUSTER, "--trace", trace, "--policies", "fifo,srtf", "--fillings", 2]
    for more in ([], ["-o", "json"]):
        monkeypatch.setattr(
            "sys.argv", ["fairlead", *map(str, words), "--workers", "1", "--state", str(tmp_path), *more]
        )
        with pytest.raises(SystemExit):
            main()
        printed = capsys.readouterr().out
        if more:
            assert {one["ways"] for one in json.loads(printed)["conclusions"]} == {2}
        else:
            assert ("What holds however the trace is filled in" in printed, " of 2" in printed) == (True, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generate": "defaults", "fillings": 3}, "name the file with --trace"),
        ({"trace": "week.csv", "fillings": 3, "seeds": "0..4"}, "leave out --seeds or --fillings"),
        ({"trace": "week.csv", "fillings": 0}, "from 1 to 1000"),
        ({"trace": "own.csv", "fillings": 3}, "there is one way to read it"),
        ({"trace": "week.csv", "fill_types": "k80", "reference": "v100"}, "keep one of the two"),
    ],
)
def test_mistakes_say_what_to_do(
    options: dict[str, Any], message: str, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "week.csv").write_bytes(trace.read_bytes())
    (tmp_path / "own.csv").write_text("id,model,arrival_s,gpus,steps\n1,resnet50,0,1,10\n")

    with pytest.raises(InputError) as refused:
        fairlead.compare(CLUSTER, "fifo", **options, workers=1, state=tmp_path / "state")

    assert message in str(refused.value)
