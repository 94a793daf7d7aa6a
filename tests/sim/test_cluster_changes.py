"""A simulated cluster that changes as planned."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from building import job, run_checked, setup
from checker import check_journal
from fairlead.model.changes import Change, ChangeKind, clusters_over_time
from fairlead.model.cluster import NodeGroup, parse_short_form
from fairlead.model.errors import InputError
from fairlead.policies import find_round_policy
from fairlead.rounds.state import State
from fairlead.sim.truth import World
from fairlead.studies.fairness.journal_audit import audit_journal
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.origin import continue_from, journal_origin
from fairlead.studies.runs.simulate import Setup, impossible, simulate
from fairlead.studies.runs.summary import summarise
from fairlead.studies.runs.timeline import Timeline, read_series
from fairlead.traces.cluster_changes import read_changes

JOIN = Change(100.0, ChangeKind.ADD, "new", NodeGroup(1, "p100", 4))
LEAVE = Change(100.0, ChangeKind.REMOVE, "v100-1")


def changing(made: Setup, *changes: Change) -> Setup:
    return replace(made, changes=changes)


def test_a_job_starts_on_the_node_that_joins(tmp_path: Path) -> None:
    made = changing(setup([job("a", 4), job("b", 4)], policy="las", round_s=60.0), JOIN)

    result, _ = run_checked(made, tmp_path / "journal")

    assert result.state.first_start_s[:2].tolist() == [0.0, 120.0]
    assert result.state.cluster.types == ("v100", "p100")


def test_a_node_that_leaves_loses_its_jobs_first(tmp_path: Path) -> None:
    made = changing(setup([job("a", 4)], "v100:4,k80:4", round_s=60.0), LEAVE)

    result, checked = run_checked(made, tmp_path / "journal")

    lines = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()[1:]]
    at_once = [line["event"] for line in lines if line["time_s"] == 100.0]
    assert at_once == ["node_down", "lost", "node_removed"]
    assert checked.jobs["a"].starts == 2
    assert result.state.capacity.tolist() == [0, 4]


def test_others_take_gpus_from_the_job_that_started_last(tmp_path: Path) -> None:
    jobs = [job("a", 2), job("b", 2, at=60.0)]
    made = changing(setup(jobs, round_s=60.0), Change(90.0, ChangeKind.USABLE, "v100-1", usable=3))

    _, checked = run_checked(made, tmp_path / "journal")

    assert checked.jobs["a"].starts == 1
    assert checked.jobs["b"].starts == 2


def test_jobs_without_usable_gpus_wait_and_the_run_ends_in_spite_of_faults() -> None:
    world = World(mtbf_s=1000.0, repair_s=10.0)
    made = changing(setup([job("a", 4), job("b", 1, types=("k80",))], "v100:4,k80:1", world=world), LEAVE)
    made = replace(
        made,
        trace=replace(
            made.trace, jobs=tuple(replace(j, types=("v100",)) if j.id == "a" else j for j in made.trace.jobs)
        ),
    )

    summary = summarise(simulate(made).state)

    assert (summary.jobs_total, summary.jobs_finished) == (2, 1)


def test_a_job_is_possible_if_a_later_cluster_has_room_for_it() -> None:
    made = setup([job("a", 4, types=("p100",))])

    assert impossible(made)
    assert not impossible(changing(made, JOIN))


def test_a_changed_journal_replays_and_audits(tmp_path: Path) -> None:
    made = changing(setup([job("a", 4), job("b", 4), job("c", 2)], "v100:4,k80:4", "gavel", round_s=60.0), JOIN, LEAVE)
    run_checked(made, tmp_path / "journal")

    report = replay_journal(tmp_path / "journal")
    audit = audit_journal(tmp_path / "journal")

    assert report.same == report.decisions > 0
    assert audit


def test_charts_follow_the_nodes() -> None:
    made = changing(setup([job("a", 4, 4000.0)], "v100:4,k80:4", round_s=60.0), JOIN, replace(LEAVE, time_s=200.0))
    line = Timeline(made.cluster)

    simulate(made, watch=line)
    series = read_series(line, {}, 20, 3)

    assert [change[:1] + change[2:] for change in line.node_changes] == [
        (100.0, 2, 4, 4),
        (200.0, 0, 0, 4),
        (200.0, 0, 0, 0),
    ]
    assert series.free_gpus is not None
    assert (series.free_gpus[0], series.free_gpus[-1]) == (4.0, 4.0)


def test_a_file_of_changes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "changes.csv"
    path.write_text(
        "time,change,node,gpu,gpus,memory_gib\n2m,add,new,Tesla P100,4,\n1h,usable,new,,2,\n2h,remove,new,,,\n"
    )

    changes = read_changes(str(path))

    assert [change.time_s for change in changes] == [120.0, 3600.0, 7200.0]
    assert changes[0].group == NodeGroup(1, "p100", 4)
    assert changes[1].usable == 2
    assert len(clusters_over_time(parse_short_form("v100:4"), changes)) == 4


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,grow,new,v100,4", "change"),
        ("1,add,new,v100,many", 'gpus is "many"'),
        ("1,add,,v100,4", "no name"),
        ("soon,add,new,v100,4", "soon"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "changes.csv"
    path.write_text(f"time,change,node,gpu,gpus\n{row}\n")

    with pytest.raises(InputError, match=message) as error:
        read_changes(str(path))
    assert "line 2" in str(error.value) or error.value.line == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Change(1.0, ChangeKind.REMOVE, "v100-9"), 'no node "v100-9"'),
        (Change(1.0, ChangeKind.ADD, "v100-1", NodeGroup(1, "v100", 4)), "already"),
        (Change(1.0, ChangeKind.USABLE, "v100-1", usable=5), "cannot be usable"),
    ],
)
def test_a_change_that_does_not_fit_the_cluster_is_refused(change: Change, message: str) -> None:
    with pytest.raises(InputError, match=f"cluster change at 1 s: .*{message}"):
        changing(setup([job("a")]), change).clusters()


def test_single_tasks_need_a_cluster_that_does_not_change() -> None:
    with pytest.raises(InputError, match="policies that decide rounds"):
        simulate(changing(setup([job("a")], policy="hare"), JOIN))


def test_jobs_of_a_type_that_left_are_measured_against_the_former_cluster() -> None:
    made = changing(
        setup([job("a", 4), job("b", 1, 4000.0, types=("k80",))], "v100:4,k80:1"), replace(LEAVE, time_s=2000.0)
    )

    summary = summarise(simulate(made).state)

    assert summary.jobs_finished == 2
    assert summary.ftf["max"] is not None
    assert summary.ftf["max"] < 100.0


@pytest.mark.parametrize("policy", ["las", "srtf"])  # the same as before, and another
def test_a_run_continues_from_a_state_whose_cluster_has_changed(tmp_path: Path, policy: str) -> None:
    world = World(mtbf_s=20_000.0, repair_s=100.0)
    made = setup([job("a", 4, 40_000.0), job("b", 4, at=300.0)], "v100:4,k80:4", "las", world=world, round_s=60.0)
    simulate(changing(made, JOIN, LEAVE), tmp_path / "journal")
    origin = journal_origin(tmp_path / "journal", 400.0, find_round_policy(policy))
    later = tmp_path / "later"

    continue_from(origin, find_round_policy(policy), origin.settings, world, future=origin.future, journal=later)

    check_journal(later)
    report = replay_journal(later)
    assert report.same == report.decisions > 0


LENDS = Change(100.0, ChangeKind.USABLE, "v100-1", usable=2)


def few_decisions() -> Callable[[State], None]:
    """A tick that fails in a run that does not end."""
    decisions = count(1)

    def tick(state: State) -> None:
        assert next(decisions) < 100, f"at {state.now_s} s the run has not ended"

    return tick


def test_a_run_ends_though_nodes_fail_if_the_only_job_left_needs_gpus_that_were_lent_away() -> None:
    made = changing(setup([job("a", 4, 1e5)], world=World(mtbf_s=3600.0, repair_s=600.0)), LENDS)
    state = simulate(made, tick=few_decisions()).state

    assert state.ended == 0
    assert state.now_s == 360.0


@pytest.mark.parametrize("policy", ["gavel-ftf", "gavel-makespan"])
def test_a_policy_that_decides_every_round_does_not_wait_for_a_job_whose_hardware_has_left(policy: str) -> None:
    made = changing(setup([job("a", 4, 1e5)], "v100:4,k80:2", policy), LEAVE)

    state = simulate(made, tick=few_decisions()).state

    assert state.ended == 0
