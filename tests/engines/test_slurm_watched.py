"""What one look at Slurm's queue after another adds up to, and that our state follows it whatever it shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.engines.slurm.folding import SlurmHardware, catch_up, spot_of
from fairlead.engines.slurm.job_requests import Site
from fairlead.engines.slurm.queue import COLUMNS, SlurmJob, read_queue
from fairlead.engines.slurm.tables import SEPARATOR
from fairlead.engines.slurm.watch_file import WatchedNode, WatchFile, job_line, node_line, read_record
from fairlead.engines.slurm.watched import FORGOTTEN, REQUEUED, WatchedJob, WatchedRun, time_s, watch
from fairlead.model.cluster import parse_short_form
from fairlead.model.errors import InputError
from fairlead.model.events import Arrived
from fairlead.model.lifecycle import Phase
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.unmeasured import WithUnmeasured
from fairlead.rounds.state import State
from fairlead.traces.profiles import load_default_profile

SITE = Site(("v100", "k80"))


def job(state: str = "PENDING", id_: str = "7", **fields: str) -> SlurmJob:
    known = {"JobID": id_, "UserName": "ann", "NumNodes": "1", "tres-per-node": "gres:gpu:2", "State": state}
    row = {**dict.fromkeys(COLUMNS, "N/A"), **known, "SubmitTime": at(0), "PriorityLong": "99", **fields}
    return read_queue(SEPARATOR.join(row[name] for name in COLUMNS) + SEPARATOR)[0]


def at(second: int) -> str:
    return f"2026-11-16T07:{second // 60:02d}:{second % 60:02d}"


def s(second: int) -> float:
    value = time_s(at(second))
    assert value is not None
    return value


class Looks:
    """A record that sees one queue after another."""

    def __init__(self) -> None:
        self.rows: dict[str, WatchedJob] = {}
        self.last_s = s(0)

    def look(self, second: int, *queue: SlurmJob) -> WatchedJob:
        news = watch(self.rows, queue, SITE, self.last_s, s(second))
        self.rows |= {row.spec.id: row for row in news.changed}
        self.last_s = s(second)
        return self.rows["7"]


def running(second: int, **fields: str) -> SlurmJob:
    return job("RUNNING", StartTime=at(second), NodeList="v100-1", **fields)


def test_a_job_that_waits_runs_and_completes_has_one_run_with_true_times() -> None:
    looks = Looks()
    looks.look(10, job())
    assert looks.look(20, running(15)).running == WatchedRun(s(15), ("v100-1",))
    ended = job("COMPLETED", StartTime=at(15), EndTime=at(24), NodeList="v100-1", exit_code="0:0")
    row = looks.look(30, ended)
    assert (row.ended, row.end_s, row.exit_code) == ("COMPLETED", s(24), 0)
    assert row.runs == (WatchedRun(s(15), ("v100-1",), s(24), "COMPLETED"),)


def test_a_look_that_shows_nothing_new_changes_no_row() -> None:
    looks = Looks()
    looks.look(20, running(15))
    assert watch(looks.rows, [running(15)], SITE, s(20), s(30)).changed == ()


def test_a_requeued_job_keeps_its_first_submission_and_has_two_runs() -> None:
    looks = Looks()
    looks.look(20, running(15))
    row = looks.look(30, job(SubmitTime=at(25), RestartCnt="1"))
    assert row.runs == (WatchedRun(s(15), ("v100-1",), s(25), REQUEUED),)
    row = looks.look(40, running(35, SubmitTime=at(25), RestartCnt="1"))
    assert [run.start_s for run in row.runs] == [s(15), s(35)]
    assert row.spec.arrival_s == s(0)


def test_a_job_that_was_requeued_and_started_between_two_looks_has_both_runs() -> None:
    looks = Looks()
    looks.look(20, running(15))
    row = looks.look(60, running(50, SubmitTime=at(40)))
    assert row.runs == (WatchedRun(s(15), ("v100-1",), s(40), REQUEUED), WatchedRun(s(50), ("v100-1",)))


def test_a_job_that_slurm_forgot_ends_when_it_was_last_seen() -> None:
    looks = Looks()
    looks.look(20, running(15))
    row = looks.look(90)
    assert (row.ended, row.end_s, row.runs[0].end_s) == (FORGOTTEN, s(20), s(20))


def test_a_job_that_began_and_ended_between_two_looks_has_its_run() -> None:
    row = Looks().look(30, job("FAILED", StartTime=at(5), EndTime=at(6), NodeList="k80-1", exit_code="7:0"))
    assert (row.ended, row.exit_code, row.runs) == ("FAILED", 7, (WatchedRun(s(5), ("k80-1",), s(6), "FAILED"),))


def test_a_cancelled_job_that_never_ran_has_no_run() -> None:
    row = Looks().look(30, job("CANCELLED", StartTime=at(20), EndTime=at(20)))
    assert (row.ended, row.runs) == ("CANCELLED", ())


@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin", "Dependency", "BeginTime"])
def test_a_job_that_slurm_does_not_consider_is_held(reason: str) -> None:
    looks = Looks()
    assert looks.look(10, job(Reason=reason)).held == reason
    assert looks.look(20, job(Reason="Priority")).held == ""


def test_a_state_of_a_newer_version_changes_nothing() -> None:
    looks = Looks()
    row = looks.look(20, running(15))
    assert looks.look(30, job("HIBERNATING")) == row


def test_a_job_that_is_being_requeued_begins_no_run_by_that() -> None:
    looks = Looks()
    row = looks.look(20, running(15))
    passing = job("COMPLETING", SubmitTime=at(25), StartTime=at(26), NodeList="v100-1", RestartCnt="1")
    assert looks.look(26, passing) == row


# ---- the file --------------------------------------------------------------------------------------------------------


def test_a_record_reads_back_what_was_written_and_drops_a_line_that_was_cut_off(tmp_path: Path) -> None:
    looks = Looks()
    row = looks.look(20, running(15))
    file = WatchFile(tmp_path / "record")
    file.write([job_line(s(20), row), {"time_s": s(21), "gap": [s(1), "why"]}])
    file.close()
    with (tmp_path / "record").open("a") as torn:
        torn.write('{"time_s": 1, "jo')
    again = WatchFile(tmp_path / "record")
    assert again.record.jobs == {"7": row}
    assert [(gap.from_s, gap.to_s) for gap in again.record.gaps] == [(s(1), s(21))]
    again.write([{"time_s": s(30)}])
    again.close()
    assert read_record(tmp_path / "record").last_s == s(30)


def test_a_record_forgets_what_is_old_and_what_was_replaced(tmp_path: Path) -> None:
    done = replace(Looks().look(20, running(15)), ended="COMPLETED", end_s=s(30))
    renamed = {id_: replace(done, spec=replace(done.spec, id=id_)) for id_ in ("old", "recent", "runs")}
    recent, runs = replace(renamed["recent"], end_s=s(90)), replace(renamed["runs"], ended="", end_s=None)
    node = WatchedNode("n1", "v100", 4)
    file = WatchFile(tmp_path / "record")
    for second in range(20):
        file.write([{"time_s": s(second)}, node_line(s(second), replace(node, up=bool(second % 2)))])
    file.write([{"time_s": s(20), "weights": {"a": 1.0}}, {"time_s": s(21), "weights": {"a": 2.0}}])
    file.write([{"time_s": s(22), "gap": [s(1), "old"]}, {"time_s": s(23), "aside": {"x": "no GPUs"}}])
    file.write([job_line(s(24), replace(renamed["old"], ended="", end_s=None)), job_line(s(30), renamed["old"])])
    file.write([job_line(s(31), runs), {"time_s": s(80), "gap": [s(70), "recent"]}, job_line(s(90), recent)])
    file.write([node_line(s(95), replace(node, up=False)), {"time_s": s(99)}])

    file.forget(s(60))

    kept = read_record(tmp_path / "record")
    assert kept == file.record
    assert kept.jobs == {"recent": recent, "runs": runs}
    assert [gap.why for gap in kept.gaps] == ["recent"]
    assert (kept.weights, kept.aside, kept.last_s) == ({"a": 2.0}, {}, s(99))
    assert kept.node_changes == [(s(19), node), (s(95), replace(node, up=False))]
    file.write([{"time_s": s(100)}])
    file.close()
    assert read_record(tmp_path / "record").last_s == s(100), "lines are appended to the new file"
    assert (tmp_path / "record").read_text().count("\n") == 9


def test_a_record_of_another_kind_or_none_is_refused_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--shadow"):
        read_record(tmp_path / "record")
    (tmp_path / "record").write_text(json.dumps({"fairlead": "trace/1"}) + "\n")
    with pytest.raises(InputError, match="slurm-watch/1"):
        read_record(tmp_path / "record")


# ---- the folded state ------------------------------------------------------------------------------------------------

CLUSTER = parse_short_form("v100:4x4,k80:2x2")
ESTIMATOR = WithUnmeasured(TableEstimator(load_default_profile(), CLUSTER))
NODES = {
    name: SlurmHardware(CLUSTER.gpu[int(type_)], int(gpus))
    for name, type_, gpus in zip(CLUSTER.nodes, CLUSTER.node_type, CLUSTER.node_gpus, strict=True)
}


def follow(state: State, rows: dict[str, WatchedJob], nodes: dict[str, SlurmHardware], now_s: float) -> None:
    """Fold until nothing is left to do."""
    begun: dict[str, float] = {}
    for _ in range(20):
        records = catch_up(state, rows, nodes, begun, now_s)
        if not records:
            return
        for record in records:
            state.fold(record)
    raise AssertionError("it never catches up")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_state_follows_whatever_slurm_shows(data: st.DataObject) -> None:
    """Random rows and nodes, also contradictory ones: every fold is legal, and what fits is where Slurm has it."""
    state, looks = State(CLUSTER, ESTIMATOR), Looks()
    ids = ["1", "2", "3", "4"]
    for row in [Looks().look(1, job(id_="7"))]:
        for id_ in ids:
            looks.rows[id_] = replace(row, spec=replace(row.spec, id=id_))
            state.fold(Arrived(s(1), looks.rows[id_].spec))
    hosts = list(CLUSTER.nodes)
    for step in range(1, 6):
        now_s = s(1 + 10 * step)
        for id_ in ids:
            looks.rows[id_] = data.draw(_row(looks.rows[id_], hosts, now_s))
        nodes = {
            name: replace(
                node,
                used=data.draw(st.integers(0, node.gpus)),
                gone=data.draw(st.booleans()),
                open=data.draw(st.booleans()),
            )
            for name, node in NODES.items()
            if data.draw(st.integers(0, 5))
        }
        follow(state, looks.rows, nodes, now_s)
        for id_ in ids:
            j, row = state.position[id_], looks.rows[id_]
            if state.held_gpus[j]:
                names = {state.cluster.nodes[node] for node, _ in state.spots[j]}
                assert row.running is not None
                assert names == set(row.running.hosts)
            if row.ended:
                assert state.phase[j] in (Phase.FINISHED, Phase.FAILED, Phase.CANCELLED)
            elif row.held and not row.running:
                assert state.phase[j] == Phase.HELD


@st.composite
def _row(draw: st.DrawFn, row: WatchedJob, hosts: list[str], now_s: float) -> WatchedJob:
    if row.ended:
        return row
    what = draw(st.sampled_from(["same", "hold", "wait", "run", "end", "cancel", "forget"]))
    if what == "same":
        return row
    closed = tuple(run if run.end_s is not None else replace(run, end_s=now_s - 1, ended=REQUEUED) for run in row.runs)
    if what in ("hold", "wait"):
        return replace(row, runs=closed, held="JobHeldUser" if what == "hold" else "")
    if what == "run":
        on = tuple(draw(st.lists(st.sampled_from([*hosts, "elsewhere"]), min_size=1, max_size=2, unique=True)))
        return replace(row, runs=(*closed, WatchedRun(now_s - 1, on)), held="")
    ended = {"end": "COMPLETED", "cancel": "CANCELLED", "forget": FORGOTTEN}[what]
    return replace(row, runs=closed, ended=ended, end_s=now_s - 1, held="")


def test_gpus_are_spread_evenly_as_far_as_there_is_room() -> None:
    state = State(CLUSTER, ESTIMATOR)
    fast, slow = CLUSTER.nodes.index("v100-1"), CLUSTER.nodes.index("k80-1")
    room = CLUSTER.node_gpus.tolist()
    assert dict(spot_of(state, 4, ("v100-1", "k80-1"), room)) == {fast: 2, slow: 2}
    assert dict(spot_of(state, 5, ("v100-1", "k80-1"), room)) == {fast: 3, slow: 2}
    assert spot_of(state, 7, ("v100-1", "k80-1"), room) == ()
    assert spot_of(state, 1, ("unknown",), room) == ()


def test_a_node_with_other_gpus_replaces_the_one_before_once_it_is_empty() -> None:
    state = State(CLUSTER, ESTIMATOR)
    follow(state, {}, {**NODES, "k80-1": SlurmHardware("a100", 8), "new": SlurmHardware("v100", 2)}, s(10))
    sizes = dict(zip(state.cluster.nodes, state.cluster.node_gpus.tolist(), strict=True))
    assert (sizes["k80-1"], sizes["new"]) == (8, 2)
    assert "a100" in state.cluster.types
    assert np.array_equal(state.nodes.free, state.nodes.usable)
