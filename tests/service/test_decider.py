"""Decisions in a child process: whatever a policy does there, the scheduler gets a named failure in time."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from failing_policy import WAYS

from building import THREE
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, Event, Started
from fairlead.model.jobs import JobSpec
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.decide import Memory
from fairlead.rounds.decision_bytes import decision_from_bytes, decision_to_bytes
from fairlead.rounds.loop import HereDecider, Settings, When
from fairlead.rounds.records import Record, Records, to_line
from fairlead.rounds.remembering import memory_to_bytes
from fairlead.rounds.replay import replay, same, same_reasons
from fairlead.rounds.state import State
from fairlead.service.live_policies import PolicyFailedError, configured
from fairlead.service.process.child import ChildLimits, ServiceEndedError
from fairlead.service.process.decider import ChildDecider, ChosenPolicy, decide_by_clock, open_child_decider
from waiting import wait_for

FILE = f"{Path(__file__).parent / 'failing_policy.py'}:POLICY"
SETTINGS = Settings(10.0, When.EVENTS)
PATIENT = ChildLimits(deadline_s=600.0, memory_gib=1.0)
HASTY = replace(PATIENT, deadline_s=0.5)
NEVER_ANSWER = ("loops", "loops-in-c", "scribbles")


def new_state() -> State:
    cluster = parse_short_form("v100:4x2,k80:2")
    return State(cluster, TableEstimator(THREE, cluster))


def arrivals(count: int, time_s: float = 0.0, first: int = 0) -> Iterator[Event]:
    for number in range(first, first + count):
        spec = JobSpec(f"j{number}", f"t{number % 3}", THREE.models[number % 2], time_s, 1 + number % 2, 1e6)
        yield Arrived(time_s, spec)


class Scheduler:
    """The state that is not in danger, and the decider that folds the same records."""

    def __init__(
        self, policy: str, limits: ChildLimits = PATIENT, ends: int | None = None, **parameters: object
    ) -> None:
        self.state = new_state()
        choice = ChosenPolicy(policy, parameters, (FILE,))
        self.decider = open_child_decider(self.state, choice, SETTINGS, limits, ends)

    def happen(self, *events: Event) -> None:
        for event in events:
            self.decider.note(event)
            self.state.fold(event)

    def decide(self, time_s: float, cause: Cause = Cause.ROUND) -> Decision:
        self.state.pass_time(time_s)
        decision = self.decider.decide(self.state, cause)
        self.state.fold(decision)
        return decision

    def close(self) -> None:
        self.decider.close()


def has_ended(decider: ChildDecider) -> bool:
    try:
        os.kill(decider.child.pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("name", ["oef-coop", "gavel", "fft", "hops-late", "las"])
def test_the_child_decides_what_this_process_would_with_the_same_memory(name: str) -> None:
    here, copy = HereDecider(configured(name, {}), SETTINGS, Memory()), new_state()
    with closing(Scheduler(name)) as scheduler:
        for number in range(4):
            now_s = 10.0 * number
            news = [*arrivals(70, now_s, 70 * number)]  # more than are sent together
            starting = np.flatnonzero(scheduler.state.phase[: scheduler.state.jobs] == 1)
            if starting.size:
                news.append(Started(now_s, starting, np.ones(starting.size), np.full(starting.size, now_s)))
            scheduler.happen(*news)
            apart = scheduler.decide(now_s)
            for event in news:
                copy.fold(event)
            copy.pass_time(now_s)
            expected = here.decide(copy, Cause.ROUND)
            copy.fold(expected)
            assert same(apart, expected)
            assert same_reasons(apart, expected)
            assert same_reasons(expected, apart)
            assert scheduler.decider.remembered == memory_to_bytes(here.memory, here.policy)


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("raises", "KeyError: 'no such thing'"),
        ("returns-none", "policy failing returned None; allocate must return"),
        ("grants-too-much", "BrokenInvariantError: "),
        ("segfaults", "it was killed by signal SIGSEGV"),
        ("allocates", "MemoryError"),
        ("prints", "policy failing returned str"),
        ("exits", "it exited with code 7"),
        ("leaves", "SystemExit: goodbye"),
        ("closes", "it closed its connection"),
        ("loops", "it did not answer within 0.5 s"),
        ("loops-in-c", "it did not answer within 0.5 s"),
        ("scribbles", "it sent a message of"),
    ],
)
def test_every_way_to_fail_is_a_named_failure_and_leaves_the_state_alone(way: str, why: str) -> None:
    with closing(Scheduler("failing", HASTY if way in NEVER_ANSWER else PATIENT, way=way)) as scheduler:
        scheduler.happen(*arrivals(5))
        moment = scheduler.state.moment
        with pytest.raises(PolicyFailedError, match=why):
            scheduler.decide(10.0)
        assert scheduler.state.moment == moment
        scheduler.close()
        assert has_ended(scheduler.decider)
    assert way in WAYS or way == "grants-too-much"


def test_a_child_that_is_killed_between_decisions_is_noticed_by_the_next_one() -> None:
    with closing(Scheduler("fifo")) as scheduler:
        scheduler.happen(*arrivals(5))
        scheduler.decide(10.0)
        os.kill(scheduler.decider.child.pid, signal.SIGKILL)
        scheduler.happen(*arrivals(500, 10.0, first=5))  # more than a socket holds
        assert scheduler.state.jobs == 505
        with pytest.raises(PolicyFailedError, match="killed by signal SIGKILL"):
            scheduler.decide(20.0)


def test_a_child_that_missed_a_record_does_not_decide() -> None:
    with closing(Scheduler("fifo")) as scheduler:
        for event in arrivals(1):
            scheduler.state.fold(event)
        with pytest.raises(PolicyFailedError, match="it has folded 0 records and the scheduler 1"):
            scheduler.decide(10.0)


def test_an_unknown_policy_or_parameter_is_a_failure_and_no_end() -> None:
    for scheduler, why in (
        (Scheduler("lost"), '"lost" is not known'),
        (Scheduler("fft", nodes=0), "nodes is 0; wanted"),
    ):
        with closing(scheduler):
            scheduler.happen(*arrivals(100))
            with pytest.raises(PolicyFailedError, match=why):
                scheduler.decide(10.0)


def test_the_end_of_the_service_ends_the_wait_for_a_decision() -> None:
    pipe, ours = os.pipe()
    with closing(Scheduler("failing", ends=pipe, way="loops-in-c")) as scheduler:
        scheduler.happen(*arrivals(1))
        os.write(ours, b".")  # an announcement is no end
        os.close(ours)
        with pytest.raises(ServiceEndedError):
            scheduler.decide(10.0)
    os.close(pipe)


def test_a_child_has_no_descriptor_but_its_socket_and_standard_error() -> None:
    with closing(Scheduler("fifo")) as scheduler:
        scheduler.happen(*arrivals(1))
        scheduler.decide(10.0)
        folder = Path(f"/proc/{scheduler.decider.child.pid}/fd")
        kept = sorted(int(entry.name) for entry in folder.iterdir())
        targets = [os.readlink(folder / str(number)) for number in kept]
    assert kept[:3] == [0, 1, 2]
    assert targets[0] == "/dev/null"
    assert targets[1] == targets[2]
    assert [target.partition(":")[0] for target in targets[3:]] == ["socket"]


def test_a_child_ends_with_its_parent_however_that_ends() -> None:
    told, tells = os.pipe()
    parent = os.fork()
    if not parent:
        scheduler = Scheduler("failing", way="loops-in-c")
        scheduler.happen(*arrivals(1))
        os.write(tells, f"{scheduler.decider.child.pid}\n".encode())
        try:
            scheduler.decide(10.0)
        finally:
            os._exit(1)
    child = int(os.read(told, 100))
    stat = Path(f"/proc/{child}/stat")
    wait_for(lambda: _cpu_ticks(stat) > 20, "the policy to loop")
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    wait_for(lambda: not stat.exists() or ") Z " in stat.read_text(), "the end of the child")
    os.close(told)
    os.close(tells)


def _cpu_ticks(stat: Path) -> int:
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_decision_that_the_clock_cut_short_is_marked_and_a_replay_uses_it() -> None:
    policy, state = configured("fft", {}), new_state()
    decider, records = HereDecider(policy, SETTINGS, Memory()), list[Record]()
    for number, solve_s in enumerate((600.0, 0.0, 600.0)):
        records += (news := [*arrivals(20, 10.0 * number, 20 * number)])
        for event in news:
            state.fold(event)
        decision = decide_by_clock(decider, state, (10.0 * number, state.moment, Cause.ROUND), solve_s)
        assert decision.by_clock == (solve_s == 0.0)
        state.fold(decision)
        records.append(decision)

    columns = Records(state.cluster)
    lines = [to_line(columns.to_json(record)) for record in records]
    columns = Records(state.cluster)
    read = [columns.from_json(json.loads(line)) for line in lines]
    pairs = list(replay(read, new_state(), policy, SETTINGS))
    assert [recorded.by_clock for recorded, _ in pairs] == [False, True, False]
    assert all(same(recorded, again) and same_reasons(recorded, again) for recorded, again in pairs)


def test_bytes_that_are_no_decision_are_refused() -> None:
    with closing(Scheduler("fifo")) as scheduler:
        scheduler.happen(*arrivals(5))
        whole = decision_to_bytes(scheduler.decide(10.0))
    assert decision_from_bytes(whole).start.size
    for cut in range(len(whole)):
        with pytest.raises((ValueError, LookupError, TypeError)):
            decision_from_bytes(whole[:cut])
