"""Jobs whose starts come to nothing: how often they are tried, what their owner sees, and what a restart changes."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from engine_world import CLUSTER, FAST, SPEEDS, Does, spec_of
from virtual_world import VirtualRunner, VirtualWorld

from fairlead.engines.leases import Condition, Key, Sight
from fairlead.engines.pausing import LONGEST_S, pause_s
from fairlead.engines.requests import Cancel, Command, Hold, Release, Submit
from fairlead.model.decision import Decision
from fairlead.model.events import Cancelled, Event, Failed, Held, Lost, Refused, Released, Started
from fairlead.model.lifecycle import Phase
from fairlead.policies import find_round_policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.loop import Settings, When, run
from fairlead.rounds.records import Records
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.rounds.waiting import reason_sentence


class Vanishing(VirtualRunner):
    """The processes of job a vanish as soon as they have begun."""

    def _seen(self, key: Key) -> Sight:
        run = self.runs[key]
        if key[0] == "a" and run.sight.condition is Condition.RUNNING:
            run.sight = Sight(Condition.VANISHED, reason="the machine is haunted")
        return run.sight


class Written:
    """A journal in memory, as JSON."""

    def __init__(self, state: State) -> None:
        self.lines: list[str] = []
        self._records = Records(CLUSTER, (spec.id for spec in state.specs))

    def event(self, event: Event) -> None:
        self.lines.append(json.dumps(self._records.to_json(event)))

    def decision(self, decision: Decision) -> None:
        self.lines.append(json.dumps(self._records.to_json(decision)))


def vanishing() -> VirtualWorld:
    world = VirtualWorld()
    world.runner = Vanishing(world.clock)
    world.connect()
    return world


def let_run(world: VirtualWorld, until_s: float) -> Written:
    """The loop of the service for this long, deciding at events."""
    journal, rest = Written(world.state), world.inbox.rest

    def rest_until(seconds: float) -> None:
        rest(min(seconds, until_s - world.clock.now_s))
        world.inbox.over = world.clock.now_s >= until_s

    world.inbox.rest = rest_until
    run(world.engine, world.state, find_round_policy("fifo"), Settings(60.0, When.EVENTS), journal)
    world.inbox.over, world.inbox.rest = False, rest
    return journal


def lost_once(world: VirtualWorld) -> Lost:
    world.add("a", Does.TRAIN)
    world.start("a")
    return world.until(Lost, "a")


def launches(world: VirtualWorld, job: str) -> list[float]:
    return [run.since_s for key, run in world.runs.items() if key[0] == job]


def test_a_job_whose_processes_vanish_at_once_is_tried_after_pauses_that_double() -> None:
    world = vanishing()
    world.add("a", Does.TRAIN)

    let_run(world, 30.0)

    tries = launches(world, "a")
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert len(tries) in (5, 6)
    for pause, longest_s in zip(pauses, (1.0, 2.0, 4.0, 8.0, 16.0), strict=False):
        assert 0.75 * longest_s <= pause < longest_s + 0.5


def test_a_job_that_ends_with_an_error_pauses_before_each_retry() -> None:
    world = VirtualWorld()
    world.add("a", Does.FAIL, max_retries=3)
    world.add("b", Does.DEAF)  # so that the loop has something to wait for

    let_run(world, 30.0)

    first, *_, last = launches(world, "a")
    assert world.phase("a") is Phase.FAILED
    assert last - first > 0.75 * (1 + 2 + 4)


def test_other_jobs_get_the_gpus_of_a_job_that_pauses() -> None:
    world = vanishing()
    world.add("a", Does.TRAIN, gpus=2)
    world.add("b", Does.TRAIN, gpus=2)

    let_run(world, 30.0)

    assert world.phase("b") is Phase.FINISHED


def test_pauses_are_the_same_every_time_and_limit_the_tries_in_an_hour() -> None:
    pauses = [pause_s("a", setbacks) for setbacks in range(1, 200)]

    assert pauses == [pause_s("a", setbacks) for setbacks in range(1, 200)]
    assert pauses[0] != pause_s("b", 1)
    assert max(pauses) <= LONGEST_S
    assert min(pauses[9:]) >= 0.75 * LONGEST_S  # from then on at most 16 tries an hour


def test_the_owner_sees_why_the_job_pauses_and_until_when() -> None:
    world = vanishing()
    lost_once(world)

    reason = reason_sentence(world.state, world.state.position["a"])

    assert reason is not None
    assert reason.startswith("BackOff: 1 start in a row came to nothing; the next one is 0.")
    assert reason.endswith("s after the last (the machine is haunted)")
    assert world.phase("a") is Phase.WAITING


def test_a_pause_ends_by_itself_or_when_the_owner_releases_the_job() -> None:
    world = vanishing()
    lost = lost_once(world)
    assert lost.again_s is not None

    world.ask(Release("a"))
    released = world.until(Released, "a")
    assert released.time_s < lost.again_s
    assert not world.state.pauses
    assert reason_sentence(world.state, 0) is None

    world.start("a")
    again = world.until(Lost, "a")
    assert again.setbacks == 2
    assert world.until(Released, "a").time_s == pytest.approx(again.again_s, abs=0.2)


@pytest.mark.parametrize(
    ("request_", "event", "phase"), [(Hold("a"), Held, Phase.HELD), (Cancel("a"), Cancelled, Phase.CANCELLED)]
)
def test_a_job_that_pauses_can_be_held_and_cancelled(request_: Hold | Cancel, event: type[Event], phase: Phase) -> None:
    world = vanishing()
    lost_once(world)

    world.ask(request_)
    world.until(event, "a")
    world.settle(5.0)

    assert world.phase("a") is phase
    assert not world.state.pauses
    assert not world.count(Released, "a")


def test_a_restart_changes_nothing_about_a_pause() -> None:
    world = vanishing()
    lost = lost_once(world)
    before = world.state

    world.state = load(dump(before), CLUSTER, TableEstimator(SPEEDS, CLUSTER))
    world.connect()
    world.engine.resume()

    assert world.state.pauses == before.pauses
    assert reason_sentence(world.state, 0) == reason_sentence(before, 0)
    assert world.until(Released, "a").time_s == pytest.approx(lost.again_s, abs=0.2)
    world.start("a")
    assert world.until(Lost, "a").setbacks == 2


def test_a_job_that_cannot_be_launched_fails_in_the_end_although_the_service_restarts() -> None:
    world = VirtualWorld()
    world.add("a", Does.NOTHING_THERE)
    for setbacks in (1, 2):
        world.start("a")
        refused = world.until(Refused, "a")
        assert refused.setbacks == setbacks
        world.state = load(dump(world.state), CLUSTER, TableEstimator(SPEEDS, CLUSTER))
        world.restart()
        world.until(Released, "a")
    world.start("a")

    assert world.until(Failed, "a").reason == "could not be started 3 times: there is no such thing"


def test_a_job_of_another_system_that_cannot_be_started_waits_with_the_reason_however_often() -> None:
    world = VirtualWorld()
    world.commands["a"] = Command(Does.NOTHING_THERE.name, foreign="7")
    world.ask(Submit(spec_of("a", 1), world.commands["a"]))

    for setbacks in range(1, 6):
        world.start("a")
        assert world.until(Refused, "a").setbacks == setbacks
        assert "there is no such thing" in (reason_sentence(world.state, 0) or "")
        world.until(Released, "a", within_s=LONGEST_S)

    assert world.phase("a") is Phase.WAITING


def test_the_journal_alone_gives_the_same_pauses() -> None:
    world = vanishing()
    world.add("a", Does.TRAIN)
    lines = let_run(world, 20.0).lines

    state, records = State(CLUSTER, TableEstimator(SPEEDS, CLUSTER)), Records(CLUSTER, ["a"])
    state.fold(world.told[0])  # its arrival
    for line in lines:
        state.fold(records.from_json(json.loads(line)))

    assert state.pauses == world.state.pauses != {}
    assert state.setbacks[0] == world.state.setbacks[0]
    assert reason_sentence(state, 0) == reason_sentence(world.state, 0)


def test_progress_ends_a_row_of_setbacks() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    setbacks = []
    for _ in range(2):
        world.start("a", FAST)
        world.until(Started, "a")
        world.settle(1.2)  # it saves some work
        world.lose_sight("a")
        setbacks.append(world.until(Lost, "a").setbacks)

    assert setbacks == [1, 1]
