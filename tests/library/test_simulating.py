"""`fairlead.simulate` and what can be read from its run: the same numbers, options and messages as the command line."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import fairlead
from fairlead.cli.options import Importing
from fairlead.cli.simulate import simulate as command
from fairlead.cli.world import WorldOptions
from fairlead.library.reading import Reading, ReadingOptions
from fairlead.library.rules import RuleOptions, WorldRules
from fairlead.model.allocation import Grants
from fairlead.model.errors import ImpossibleError, InputError
from fairlead.studies.fairness.journal_audit import audit_journal

CLUSTER = "v100:4,k80:4"


@pytest.fixture(scope="module")
def trace() -> fairlead.Trace:
    return fairlead.generate(CLUSTER, jobs=14, load=1.5, tenants=2, durations="gavel", seed=2)


@pytest.fixture(scope="module")
def run(trace: fairlead.Trace) -> fairlead.Run:
    return fairlead.simulate(CLUSTER, trace, "las")


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


# ---- importing ------------------------------------------------------------------------------------------------------


def test_importing_fairlead_imports_nothing_else() -> None:
    """Neither numpy nor any other module of ours, which training scripts would pay for."""
    code = "import sys; before = set(sys.modules); import fairlead; print(sorted(set(sys.modules) - before))"

    assert python(code).strip() == "['fairlead']"


def test_every_name_of_the_library_can_be_used_and_is_listed() -> None:
    assert set(fairlead.__all__) <= set(dir(fairlead))
    assert set(fairlead._WHERE) == set(fairlead.__all__)
    assert all(getattr(fairlead, name) is not None for name in fairlead.__all__)
    with pytest.raises(AttributeError, match="no attribute 'simulte'"):
        getattr(fairlead, "simulte")  # noqa: B009  mypy would refuse the attribute


# ---- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "typed", "options"), [(WorldRules, RuleOptions, WorldOptions), (Reading, ReadingOptions, Importing)]
)
def test_keywords_have_the_names_and_defaults_of_the_options(library: Any, typed: Any, options: Any) -> None:
    keywords = {field.name: field.default for field in fields(library)}

    assert keywords == {field.name.rstrip("_"): field.default for field in fields(options)}
    assert list(keywords) == list(typed.__annotations__)
    assert get_type_hints(WorldRules) == get_type_hints(RuleOptions)


def test_the_other_keywords_of_simulate_are_options_too() -> None:
    mine = {name: one.default for name, one in inspect.signature(fairlead.simulate).parameters.items()}
    options = {name: one.default for name, one in inspect.signature(command).parameters.items()}

    for name in ("cluster", "trace", "policy", "param", "seed", "journal"):
        assert name in options
    assert (mine["seed"], options["seed"]) == (
        None,
        0,
    )  # None is 0, or with from_ the seed of the run that is continued
    assert mine["journal"] == options["journal"]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"rounds": 5}, 'there is no option "rounds"; did you mean "round"?'),
        ({"round": "5x"}, '--round "5x" is not understood; write seconds or parts such as 30s'),
        ({"repair": "2h"}, "--repair has no effect without --mtbf"),
        ({"task": "5s"}, "--task has no effect: it is for policies that decide single tasks"),
        ({"tenants": 3}, "tenants is for files, and this trace has been read; pass it to read_trace instead"),
        ({"param": {"speed": 1}}, 'policy las has no parameter "speed"'),
        ({"tenant_weight": {"tenant-1": 0}}, '--tenant-weight tenant-1: "0" is not a number above 0'),
        ({"sensing": "all"}, '--sensing "all" is not known'),
    ],
)
def test_mistakes_have_the_messages_of_the_command_line(
    trace: fairlead.Trace, keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        fairlead.simulate(CLUSTER, trace, "las", **keywords)

    assert message in str(refused.value)
    assert isinstance(refused.value, fairlead.FairleadError)


def test_a_trace_in_the_place_of_the_cluster_is_refused(trace: fairlead.Trace) -> None:
    with pytest.raises(InputError, match="or a Cluster, not a Trace"):
        fairlead.simulate(trace, CLUSTER, "las")  # type: ignore[call-overload]


def test_jobs_that_can_never_run_are_refused_or_left_out(trace: fairlead.Trace) -> None:
    wide = fairlead.generate("v100:8x8", jobs=6, width={8: 1, 1: 1}, seed=1)
    with pytest.raises(ImpossibleError, match="of 6 jobs can never run on this cluster"):
        fairlead.simulate(CLUSTER, wide, "las")

    run = fairlead.simulate(CLUSTER, wide, "las", skip_impossible=True)

    assert run.skipped == 6 - len(run.jobs) > 0


def test_durations_are_numbers_or_text_and_mappings_may_be_words(trace: fairlead.Trace) -> None:
    one = fairlead.simulate(CLUSTER, trace, "las", round=300, tenant_weight={"tenant-1": 2}, server_factors=(0.8, 1))
    other = fairlead.simulate(CLUSTER, trace, "las", round="5m", tenant_weight=["tenant-1=2"], server_factors="0.8:1")

    assert one.setup.settings == other.setup.settings
    assert one.setup.world == other.setup.world
    assert one.jobs["end_s"].tolist() == other.jobs["end_s"].tolist()


def test_parameters_are_part_of_the_name_or_given_apart(trace: fairlead.Trace) -> None:
    apart = fairlead.simulate(CLUSTER, trace, "las", param={"queues_gpu_s": (60.0,)})
    named = fairlead.simulate(CLUSTER, trace, "las:queues_gpu_s=60")

    assert apart.setup.policy.parameters == named.setup.policy.parameters == {"queues_gpu_s": (60.0,)}
    assert named.policy == "las"  # by which a journal can be replayed


# ---- the run --------------------------------------------------------------------------------------------------------


def test_the_summary_is_what_the_command_prints(
    trace: fairlead.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fairlead.cli.main import main
    from fairlead.traces.formats import write_trace

    write_trace(trace, tmp_path / "jobs.csv")
    words = ["--cluster", CLUSTER, "--trace", str(tmp_path / "jobs.csv"), "--policy", "las", "--round", "5m"]
    monkeypatch.setattr("sys.argv", ["fairlead", "simulate", *words, "-o", "json"])
    with pytest.raises(SystemExit):
        main()
    printed = json.loads(capsys.readouterr().out)

    summary = fairlead.simulate(CLUSTER, tmp_path / "jobs.csv", "las", round="5m").summary

    timings = ("cpu_s", "wall_s", "decision_s")
    assert {k: v for k, v in json.loads(json.dumps(summary)).items() if k not in timings} == {
        k: v for k, v in printed.items() if k not in timings
    }


def test_the_table_of_jobs_agrees_with_the_summary(run: fairlead.Run, trace: fairlead.Trace) -> None:
    jobs = run.jobs

    assert jobs["id"].tolist() == [job.id for job in trace.jobs]
    assert jobs["jct_s"].mean() == pytest.approx(run.summary["jct_s"]["mean"])
    assert jobs["wait_s"].max() == pytest.approx(run.summary["wait_s"]["max"])
    assert jobs["ftf"].mean() == pytest.approx(run.summary["ftf"]["mean"])
    assert jobs["migrations"].mean() == pytest.approx(run.summary["migrations_per_job"])
    np.testing.assert_allclose(jobs["end_s"] - jobs["arrival_s"], jobs["jct_s"])


def test_the_table_of_tenants_adds_up_to_the_jobs(run: fairlead.Run) -> None:
    jobs, tenants = run.jobs, run.tenants

    assert sorted(tenants["tenant"].tolist()) == ["tenant-1", "tenant-2"]
    for row in tenants.rows():
        mine = jobs.where(tenant=row["tenant"])
        assert (row["jobs_finished"], row["jct_mean_s"]) == (len(mine), pytest.approx(mine["jct_s"].mean()))
        assert row["gpu_hours"] == pytest.approx(mine["gpu_hours"].sum())


def test_stays_account_for_all_gpu_hours(run: fairlead.Run) -> None:
    stays = run.stays
    held_h = stays["gpus"] * (stays["end_s"] - stays["start_s"]) / 3600

    assert held_h.sum() == pytest.approx(run.jobs["gpu_hours"].sum())
    assert {*stays["type"].tolist()} <= {"v100", "k80"}
    assert {node.partition("-")[0] for node in stays["node"].tolist()} <= {"v100", "k80"}


def test_the_timeline_has_parts_of_the_cluster_by_type_and_tenant(run: fairlead.Run) -> None:
    line = run.timeline

    assert {"hour", "utilisation_v100", "utilisation_k80", "share_tenant-1", "entitled_tenant-2"} <= set(line.names)
    assert 0 < line["utilisation_v100"].max() <= 1 + 1e-9


def test_a_journal_that_another_run_has_overwritten_is_not_read(trace: fairlead.Trace, tmp_path: Path) -> None:
    runs = [fairlead.simulate(CLUSTER, trace, name, journal=tmp_path / "run.jsonl") for name in ("fifo", "las")]
    alone = fairlead.simulate(CLUSTER, trace, "fifo")

    assert runs[0].audit.to_json() == alone.audit.to_json()


@pytest.mark.parametrize("kept", [True, False], ids=["from the journal", "by simulating again"])
def test_a_run_is_audited_like_its_journal(trace: fairlead.Trace, tmp_path: Path, kept: bool) -> None:
    path = tmp_path / "run.jsonl"
    run = fairlead.simulate(CLUSTER, trace, "fifo", journal=path if kept else None)
    if not kept:
        assert run.write_journal(path) == path

    assert run.audit.to_json() == audit_journal(path).to_json()
    assert run.journal == (path if kept else None)


def test_single_tasks_have_stays_without_nodes(trace: fairlead.Trace) -> None:
    stays = fairlead.simulate(CLUSTER, trace, "hlas").stays

    assert len(stays)
    assert set(stays["node"].tolist()) == {""}


def test_a_notebook_shows_a_run_by_its_main_numbers(run: fairlead.Run) -> None:
    shown = run._repr_html_()

    assert "las on generated workload" in shown
    assert shown.count("<table>") == 2  # the numbers, and the tenants
    assert repr(run) == "<Run of las on generated workload: 14 jobs>"


# ---- policies as functions ------------------------------------------------------------------------------------------


@fairlead.policy(level="grants", knows=["lengths"])
def first_fit(view: Any, memory: None, /, *, most: int = 99) -> tuple[Grants, None]:
    """Serves jobs in order. Nothing else."""
    free, rows = view.capacity.copy(), list[tuple[int, int, int]]()
    assert view.total is not None, "it knows lengths"
    for j in range(view.jobs):
        for t in np.flatnonzero(view.rate[j]).tolist():
            if free[t] >= view.width[j] and len(rows) < most:
                free[t] -= view.width[j]
                rows.append((j, t, view.width[j]))
                break
    return Grants(*np.array(rows, dtype=np.int64).reshape(-1, 3).T), None


def test_a_function_is_a_policy_with_its_name_sentence_and_parameters(trace: fairlead.Trace) -> None:
    assert (first_fit.name, first_fit.summary) == ("first-fit", "Serves jobs in order.")
    assert first_fit.parameters == {"most": 99}

    all_at_once = fairlead.simulate(CLUSTER, trace, first_fit)
    one_by_one = fairlead.simulate(CLUSTER, trace, first_fit, param={"most": 1})

    assert one_by_one.summary["makespan_s"] > all_at_once.summary["makespan_s"]


def decorated(level: str, knows: list[str]) -> Callable[..., Any]:
    return fairlead.policy(level=level, knows=knows)


@pytest.mark.parametrize(("level", "knows"), [("grant", []), ("grants", ["length"])])
def test_a_level_or_knowledge_that_does_not_exist_is_refused(level: str, knows: list[str]) -> None:
    with pytest.raises(InputError, match="did you mean"):
        decorated(level, knows)(lambda view, memory: (view, memory))
