"""What a policy remembers is stored with its decisions, and simulations from the service's state begin with it."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from old_states import unpack

from building import ROUND_POLICIES, job, setup
from fairlead.model.allocation import Level
from fairlead.model.decision import Decision
from fairlead.model.events import Event, NodeAdded, PolicySet
from fairlead.model.view import View
from fairlead.policies import REGISTRY, find_round_policy
from fairlead.policies.policy import Policy, RoundPolicy
from fairlead.rounds.decide import Memory
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.loop import Settings, run_with
from fairlead.rounds.records import Record, Records, to_line
from fairlead.rounds.remembering import carried_from_json, memory_from_json, memory_to_json
from fairlead.service.process.scheduler import decide_here
from fairlead.service.store.database import open_reader, open_writer
from fairlead.service.store.directory import make, open_directory, read_directory
from fairlead.service.store.log import Log, open_log
from fairlead.service.store.tables import EVENTS
from fairlead.service.store.upgrade import upgrade
from fairlead.sim.rounds.engine import SimEngine
from fairlead.sim.rounds.until import Until
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.origin import Origin, continue_from, journal_origin, service_origin
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.what_if.forward import forward
from fairlead.studies.what_if.snapshot_file import snapshot_line

REGISTERED = [policy for policy in ROUND_POLICIES if policy in REGISTRY.values()]


@dataclass
class Tape:
    records: list[Record] = field(default_factory=list)

    def event(self, event: Event) -> None:
        self.records.append(event)

    def decision(self, decision: Decision) -> None:
        self.records.append(decision)


@contextmanager
def service(made: Setup, until_s: float, path: Path) -> Iterator[Log]:
    """The log of a service that decides in a simulated world until some time."""
    settings: Settings = made.settings
    make(open_directory(path), made.header())
    with closing(open_writer(path / "events.db", EVENTS)) as connection:
        log = open_log(connection)
        engine = Until(SimEngine(made.truth(), senses=log.state.learner is not None), until_s)
        with decide_here(log, settings) as decider:
            run_with(decider, engine, log.state, settings, log)
        log.commit(0)
        yield log


def origin_of(path: Path) -> Origin:
    return service_origin("service", *read_directory(path))


def lines_of(origin: Origin) -> list[str]:
    tape = Tape()
    forward(origin, journal=tape)
    return lines(tape.records, origin)


def lines(records: Sequence[Record], origin: Origin) -> list[str]:
    """Records as in a journal, without the last digits of reasons: solvers that stay open may round them differently."""
    named = Records(origin.state.cluster, [spec.id for spec in origin.state.specs])
    return [to_line(without_digits(named.to_json(record))) for record in records]


def without_digits(record: dict[str, Any]) -> dict[str, Any]:
    reasons = record.get("why") or {}
    short = {job: [round(part, 6) if isinstance(part, float) else part for part in row] for job, row in reasons.items()}
    return {**record, "why": short}


def rotating(policy: str = "oef-coop") -> Setup:
    """Three tenants with more jobs than GPUs, which take turns."""
    jobs = [
        job(f"job-{i}", 1 + i % 3, 4000.0 + 300 * i, at=7.0 * i, tenant=("ann", "bob", "eve")[i % 3]) for i in range(12)
    ]
    return setup(jobs, "v100:3,k80:2", policy, round_s=60.0)


def crowded(policy: Policy) -> Setup:
    """Jobs of three tenants and two models that wait for each other and keep coming: what is remembered matters."""
    random = np.random.default_rng(4)
    jobs = []
    for i in range(24):
        width, samples = int(random.choice((1, 1, 2, 3))), float(random.uniform(400.0, 5000.0))
        at = 5.0 * i if i < 10 else float(random.uniform(0.0, 1500.0))
        jobs.append(job(f"job-{i}", width, samples, at=at, tenant="abc"[i % 3], model=("even", "fast")[i % 2]))
    return setup(jobs, "v100:3,k80:3", policy, round_s=60.0)


@pytest.mark.parametrize("policy", REGISTERED, ids=attrgetter("name"))
def test_the_future_of_a_service_is_what_would_have_happened(policy: Policy, tmp_path: Path) -> None:
    made, path = crowded(policy), tmp_path / "run.jsonl"
    simulate(made, path)
    with service(made, 1000.0, tmp_path / "state") as log:
        now_s = log.state.now_s
    origin, tape = origin_of(tmp_path / "state"), Tape()
    assert origin.carried is not None
    later = tuple(spec for spec in made.trace.jobs if spec.arrival_s > now_s)
    forward(replace(origin, future=later), horizon_s=2000.0, journal=tape)

    records = [record for record in JournalReader(path).records() if record.time_s > now_s]
    expected = lines(records[: len(tape.records)], origin)
    assert lines(tape.records, origin) == expected
    assert len(expected) > 20


def test_deficits_decide_whose_turn_it_is(tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing about them."""
    made = rotating()
    with service(made, 1000.0, tmp_path):
        origin = origin_of(tmp_path)
    assert origin.carried is not None
    assert np.abs(origin.carried.memory.owed.gpus).max() > 0.1

    assert lines_of(origin) != lines_of(replace(origin, carried=None))


@pytest.mark.parametrize("policy", ["oef-coop", "hlas-rounds"])
def test_it_is_known_after_a_snapshot_that_is_newer_than_the_last_decision(policy: str, tmp_path: Path) -> None:
    made = rotating(policy)
    with service(made, 1000.0, tmp_path) as log:
        before = origin_of(tmp_path)
        log.snapshot()
        after = origin_of(tmp_path)
    assert after.carried is not None
    assert lines_of(after) == lines_of(before)


def test_a_policy_that_was_set_remembers_nothing(tmp_path: Path) -> None:
    made = rotating()
    with service(made, 1000.0, tmp_path) as log:
        event = PolicySet(log.state.now_s, "oef-coop", {})
        log.event(event)
        log.state.fold(event)
        log.commit(0)
        carried = origin_of(tmp_path).carried
    assert carried is not None
    assert carried.memory == Memory()
    assert carried.due_s == event.time_s


def test_a_changed_cluster_keeps_deficits_and_not_the_memory_of_the_policy(tmp_path: Path) -> None:
    for policy in ("oef-coop", "fft"):
        made = rotating(policy)
        with service(made, 1000.0, tmp_path / policy) as log:
            before = origin_of(tmp_path / policy)
            event = NodeAdded(log.state.now_s, "new", "v100", 1, 16.0)
            log.event(event)
            log.state.fold(event)
            log.commit(0)
            after = origin_of(tmp_path / policy)
        assert before.carried is not None
        assert after.carried is not None
        assert after.carried.memory.of_policy(after.state.cluster) is None
        assert np.array_equal(after.carried.memory.owed.gpus, before.carried.memory.owed.gpus)
        assert (before.carried.memory.policy is not None) == (policy == "fft")


def test_a_memory_of_an_earlier_decision_is_not_used(tmp_path: Path) -> None:
    """As after a version that does not store it."""
    made = rotating()
    with service(made, 1000.0, tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection, connection:
        connection.execute("UPDATE facts SET value = value - 1 WHERE name = 'memory_seq'")
    assert origin_of(tmp_path).carried is None


def test_a_state_of_an_earlier_version_begins_without_memory(tmp_path: Path) -> None:
    path = unpack(tmp_path)
    upgrade(open_directory(path))
    with closing(open_reader(path / "events.db")) as connection:
        assert connection.execute("SELECT count(*) FROM log WHERE kind = 'decision'").fetchone()[0] > 0
    origin = origin_of(path)
    assert origin.carried is None
    assert origin.state.active > 0


@pytest.mark.parametrize("policy", ["oef-coop", "gavel-makespan", "tiresias"])
def test_a_continued_run_is_replayed_with_what_was_remembered(policy: str, tmp_path: Path) -> None:
    made, path = rotating(policy), tmp_path / "onwards.jsonl"
    with service(made, 1000.0, tmp_path / "state"):
        origin = origin_of(tmp_path / "state")
    continue_from(origin, origin.policy, origin.settings, origin.world(), journal=path)

    replayed = replay_journal(path)
    assert replayed.decisions == replayed.same > 10
    middle_s = 0.5 * (origin.state.now_s + origin.state.now_s + 2000.0)
    later = journal_origin(path, middle_s)
    theirs = lines_of(origin)
    mine = lines_of(later)
    assert mine == theirs[len(theirs) - len(mine) :]
    assert mine


def test_another_policy_is_compared_without_memory(tmp_path: Path) -> None:
    made, path = rotating(), tmp_path / "onwards.jsonl"
    with service(made, 1000.0, tmp_path / "state"):
        origin = origin_of(tmp_path / "state")
    continue_from(origin, origin.policy, origin.settings, origin.world(), journal=path)
    replayed = replay_journal(path, find_round_policy("fft"))
    assert 0 <= replayed.same < replayed.decisions


def _counting(view: View, memory: Any) -> tuple[Any, Any]:
    raise AssertionError("never asked")


@dataclass(frozen=True)
class Seen:
    rounds: int
    nodes: dict[str, float]
    past: tuple[float, ...]


COUNTING = RoundPolicy("counting", "", "", Level.GRANTS, _counting, remembers=(Seen,))


def test_memory_that_is_data_comes_back_as_it_was() -> None:
    cluster = rotating().cluster
    own = {"seen": Seen(3, {"rack-nine": 0.1}, (1.0, float("inf"))), 2: [True, None, np.arange(6).reshape(2, 3)]}
    memory = Memory(own, held_back={7: 12.5}, cluster=cluster)
    back = memory_from_json(memory_to_json(memory, COUNTING), COUNTING, cluster)
    came = back.of_policy(cluster)
    assert isinstance(came, dict)
    assert came["seen"] == own["seen"]
    assert came[2][:2] == [True, None]
    assert np.array_equal(came[2][2], own[2][2])  # type: ignore[index]
    assert back.held_back == {7: 12.5}


def test_memory_that_is_not_data_is_left_out() -> None:
    cluster = rotating().cluster
    for own in (object(), {"solver": object()}, [Seen], Seen(1, {}, ()), defaultdict(int), 10**5000):
        policy = COUNTING if not isinstance(own, Seen) else replace(COUNTING, remembers=())
        back = memory_from_json(memory_to_json(Memory(own, held_back={1: 2.0}), policy), policy, cluster)
        assert back.policy is None
        assert back.held_back == {1: 2.0}


@pytest.mark.parametrize(
    "wrong",
    [
        {"due_s": 10**400},
        {"last_s": float("nan")},
        {"memory": {"owed": {}, "held_back": []}},
        {"memory": {"owed": {"owners": [], "gpus": []}, "held_back": [[float("inf"), 0.0]]}},
    ],
    ids=["too large", "no number", "half a memory", "no job"],
)
def test_what_no_fairlead_has_written_is_not_carried(wrong: dict[str, Any]) -> None:
    record = {"memory": None, "due_s": 1.0, "last_s": 0.0}
    cluster = rotating().cluster

    assert carried_from_json(record, COUNTING, cluster) is not None
    assert carried_from_json({**record, **wrong}, COUNTING, cluster) is None


def test_memory_of_a_class_that_has_changed_is_left_out() -> None:
    cluster = rotating().cluster
    record = memory_to_json(Memory(Seen(1, {}, ())), COUNTING)
    del record["policy"]["fields"]["past"]
    assert memory_from_json(record, COUNTING, cluster).policy is None
    record["policy"]["class"] = "JobSpec"
    assert memory_from_json(record, COUNTING, cluster).policy is None


@pytest.mark.parametrize("policy", ["oef-coop", "gavel-makespan"])
def test_without_names_the_future_is_the_same(policy: str, tmp_path: Path) -> None:
    made = rotating(policy)
    with service(made, 1000.0, tmp_path / "state"):
        header, state = read_directory(tmp_path / "state")
    times = []
    for anonymise in (False, True):
        file = tmp_path / f"{anonymise}.snapshot"
        file.write_text(snapshot_line(header, state, anonymise=anonymise))
        text, origin = file.read_text(), journal_origin(file)
        assert any(name in text for name in ("ann", "v100-1", "job-3")) == (not anonymise)
        assert origin.carried is not None
        assert origin.carried.memory.owed.gpus.any()
        times.append([(row.start_s, row.end_s) for row in forward(origin).jobs.values()])
    assert times[0] == times[1]
    assert len(times[0]) > 5


def test_a_memory_with_names_is_not_in_an_anonymous_snapshot(tmp_path: Path) -> None:
    made = rotating()
    with service(made, 1000.0, tmp_path / "state"):
        header, state = read_directory(tmp_path / "state")
    named = memory_to_json(Memory(Seen(1, {"rack-nine": 1.0}, ()), held_back={3: 4.0}), COUNTING)
    carried = {**header.more["carried"], "memory": named}
    header = replace(header, more={**header.more, "carried": carried})
    assert "rack-nine" in snapshot_line(header, state)
    anonymous = snapshot_line(header, state, anonymise=True)
    assert "rack-nine" not in anonymous
    assert '"held_back":[[3,4.0]]' in anonymous
