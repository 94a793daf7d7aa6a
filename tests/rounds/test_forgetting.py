"""Jobs that have ended can be forgotten at any time: no later decision changes, and no fact about the others."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import THREE, job, setup, setups
from checker import BadJournalError, check_journal
from fairlead.model.cluster import parse_short_form
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.events import Arrived, Cancelled, Forgotten
from fairlead.policies import ROUND_POLICIES
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.three_layer import Sensing, ThreeLayer
from fairlead.rounds.copying import copied
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.look import look
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.studies.fairness.journal_audit import audit_journal
from fairlead.studies.journals.folding import open_state, state_at
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.simulate import simulate

CLUSTER = parse_short_form("v100:4,k80:2")


def forgetful(lines: list[str], every: int) -> Iterator[str]:
    """The journal's lines, with all jobs that have ended forgotten after every that many records.

    Nothing is forgotten between the end of a node and the losses that follow from it.
    """
    ended: list[str] = []
    for number, line in enumerate(lines):
        yield line
        record = json.loads(line)
        if record.get("event") == "finished":
            ended += record["jobs"]
        if ended and number % every == 0 and record.get("event") != "node_down":
            yield json.dumps({"event": "forgotten", "time_s": record["time_s"], "jobs": ended})
            ended = []


def make_forgetful(journal: Path, every: int) -> Path:
    path = journal.with_suffix(".forgetful")
    path.write_text("\n".join(forgetful(journal.read_text().splitlines(), every)) + "\n")
    return path


@given(st.data())
@settings(max_examples=25)
def test_no_policy_notices_that_jobs_were_forgotten(data: st.DataObject) -> None:
    policy = data.draw(st.sampled_from(sorted(ROUND_POLICIES)))
    made = replace(data.draw(setups(policy)), sensing=data.draw(st.sampled_from(Sensing)))
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal"
        simulate(made, journal)
        path = make_forgetful(journal, data.draw(st.integers(1, 9)))
        replayed, whole, small = replay_journal(path), state_at(journal), state_at(path)
        check_journal(path)

    assert replayed.same == replayed.decisions
    assert small.jobs + small.forgotten == whole.jobs
    for name in ("now_s", "busy_gpu_s", "up_gpu_s", "waiting_time_s", "crowd_s", "active", "running"):
        assert getattr(small, name) == getattr(whole, name), name


@given(st.data())
@settings(max_examples=25)
def test_folding_the_tail_after_a_load_equals_folding_all(data: st.DataObject) -> None:
    made = replace(data.draw(setups("gavel")), sensing=data.draw(st.sampled_from(Sensing)))
    with tempfile.TemporaryDirectory() as folder:
        simulate(made, Path(folder) / "journal")
        reader = JournalReader(make_forgetful(Path(folder) / "journal", data.draw(st.integers(1, 9))))
        header, records = reader.header(), list(reader.records())
    cut = data.draw(st.integers(0, len(records)))
    whole, head = open_state(header), open_state(header)
    for record in records[:cut]:
        head.fold(record)
    tail, twin = load(dump(head), header.cluster, open_state(header).estimator), copied(head)
    for record in records:
        whole.fold(record)
    for record in records[cut:]:
        tail.fold(record)
        twin.fold(record)

    assert dump(tail) == dump(whole) == dump(twin)
    view, same = (look(state, ROUND_POLICIES["fifo"], 60.0) for state in (whole, tail))
    for name in ("job", "position", "tenant", "kind", "alike", "model", "width_set", "rate"):
        assert getattr(view, name).tolist() == getattr(same, name).tolist(), name


def test_an_audit_reports_the_same_after_jobs_were_forgotten(tmp_path: Path) -> None:
    jobs = [
        job(f"j{n}", at=50.0 * n, model=("fast", "even")[n % 2], tenant=("ann", "bob")[n % 3 == 0]) for n in range(24)
    ]
    simulate(replace(setup(jobs, "v100:4,k80:2", "oef-coop"), sensing=Sensing.TYPES), tmp_path / "journal")
    path = make_forgetful(tmp_path / "journal", 3)

    one, other = audit_journal(tmp_path / "journal"), audit_journal(path)

    assert one.tenants == other.tenants
    assert (one.max_envy, one.min_sharing_incentive) == (other.max_envy, other.min_sharing_incentive)


def test_the_state_is_as_small_as_its_active_jobs() -> None:
    state = State(CLUSTER, TableEstimator(THREE, CLUSTER))
    for number in range(2000):
        state.fold(Arrived(1.0, job(f"j{number}", at=1.0)))
        if number % 100 == 99:
            over = np.arange(state.jobs - 1)
            state.fold(Cancelled(1.0, over[state.phase[over] == state.phase[state.jobs - 1]]))
            state.fold(Forgotten(1.0, over))

    assert [spec.id for spec in state.specs] == ["j1999"]
    assert (state.jobs, state.forgotten, state.active) == (1, 1999, 1)
    assert state.number.tolist() == [1999]
    assert state.position == {"j1999": 0}


def test_a_job_that_has_not_ended_is_never_forgotten() -> None:
    state = State(CLUSTER, TableEstimator(THREE, CLUSTER))
    state.fold(Arrived(1.0, job("j1", at=1.0)))

    with pytest.raises(BrokenInvariantError, match="j1 is forgotten before it has ended"):
        state.fold(Forgotten(1.0, np.array([0])))


def test_the_checker_finds_a_job_that_is_forgotten_too_early(tmp_path: Path) -> None:
    simulate(setup([job("j1"), job("j2")]), tmp_path / "journal")
    lines = (tmp_path / "journal").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if json.loads(line).get("event") == "arrived")
    arrived = json.loads(lines[at])
    early = {"event": "forgotten", "time_s": arrived["time_s"], "jobs": [arrived["job"]["id"]]}
    (tmp_path / "early").write_text("\n".join((*lines[: at + 1], json.dumps(early), *lines[at + 1 :])) + "\n")

    with pytest.raises(BadJournalError, match="is forgotten before it has ended"):
        check_journal(tmp_path / "early")


def test_votes_of_forgotten_jobs_still_count_about_a_node() -> None:
    learner = ThreeLayer(TableEstimator(THREE, CLUSTER), CLUSTER)
    for number in range(3):
        for _ in range(3):
            learner.observe(number, THREE.models[0], ((0, 1),), learner.at(THREE.models[0], 0, 1, 1) / 2)
    before = learner.factor_of(0)
    for number in range(2):
        learner.end(number)

    learner.renumber({2: 0})
    learner.renumber({0: 0})

    assert before is not None
    assert math.isclose(before, 0.5, rel_tol=0.01)
    assert learner.factor_of(0) == before
    assert learner.jobs_seen_on(0) == 3
    assert sorted(learner.learnt()["votes"])[-1][1] == 0


def test_every_table_of_the_state_by_position_follows_the_jobs() -> None:
    """A new table of the state has to be renumbered in rounds/forgetting.py; the test names those that are not by job."""
    state = State(CLUSTER, TableEstimator(THREE, CLUSTER))
    for number in range(3):
        state.fold(Arrived(1.0, job(f"j{number}", at=1.0)))
    not_by_job = {"given_weight", "_given_quotas", "tenants", "restart_costs", "position"}
    tables = [name for name, value in vars(state).items() if isinstance(value, dict) and name not in not_by_job]
    for name in tables:
        setattr(state, name, {2: f"of j2 in {name}"})
    state.fold(Cancelled(1.0, np.array([0])))

    state.fold(Forgotten(1.0, np.array([0])))

    assert {name: getattr(state, name) for name in tables} == {name: {1: f"of j2 in {name}"} for name in tables}
    assert {"terms", "spread_rate", "served"} <= set(tables)
