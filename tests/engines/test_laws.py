"""The laws of `engines/runner.py`, tried on every runner. Each test names the law that it is about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from engine_world import FAST, SLOW, Does, LiveWorld
from worlds import WORLDS, params

from fairlead.engines.grants import choose_slots, without_slots
from fairlead.engines.leases import OVER, Condition, Key, Lease, Sight
from fairlead.engines.runner import Capabilities, LaunchError
from fairlead.model.allocation import Spot
from waiting import wait_for

ORDER = [Condition.NEVER_CLAIMED, Condition.QUEUED, Condition.RUNNING, Condition.ENDED]


class Bench:
    """A runner alone, without the live engine."""

    def __init__(self, world: LiveWorld) -> None:
        self.world = world
        self.runner = world.runner

    def lease(self, does: Does, id_: str = "a", number: int = 1, spot: Spot = ((FAST, 1),)) -> Lease:
        self.world.commands[id_] = self.world.command(does, 0)
        if self.runner.capabilities.picks_devices:
            gpus = without_slots(self.world.state, spot)
        else:
            gpus = choose_slots(self.world.state, spot, set()) or ()
        return Lease(id_, number, gpus, self.world.commands[id_])

    def launch(self, does: Does, id_: str = "a") -> Lease:
        lease = self.lease(does, id_)
        self.runner.launch(lease)
        return lease

    def ask_to_stop(self, lease: Lease) -> None:
        """Until the request got through, as the engine does."""

        def reached() -> bool:
            self.world.rest(0.05)
            self.sight(lease.key)
            return self.runner.ask_to_stop(lease)

        wait_for(reached, f"the request to reach {lease.key}")

    def sight(self, key: Key) -> Sight:
        return self.runner.look([key]).sight(key)

    def until(self, key: Key, *conditions: Condition) -> Sight:
        def seen() -> bool:
            self.world.rest(0.05)
            return self.sight(key).condition in conditions

        wait_for(seen, f"{key} to be one of {conditions}")
        return self.sight(key)


@pytest.fixture(params=params("simulated"))  # which has no leases
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    world = WORLDS[request.param](tmp_path)
    assert isinstance(world, LiveWorld)
    yield Bench(world)
    world.close()


def needs(bench: Bench, what: str) -> None:
    if what in bench.world.lacks:
        pytest.skip(f"the {bench.world.name} engine has no notion of it: {bench.world.lacks[what]}")


def test_1_a_lease_runs_once_however_often_it_is_launched(bench: Bench) -> None:
    lease = bench.launch(Does.TRAIN)
    bench.until(lease.key, Condition.RUNNING)

    with pytest.raises(LaunchError):
        bench.runner.launch(lease)

    assert bench.world.alive("a") == 1


def test_2_nothing_runs_of_a_lease_that_could_not_be_launched(bench: Bench) -> None:
    needs(bench, "refuse")
    lease = bench.lease(Does.NOTHING_THERE)
    with pytest.raises(LaunchError):
        bench.runner.launch(lease)

    bench.world.rest(0.5)

    assert bench.world.alive("a") == 0
    assert bench.runner.revoke(lease.key)
    if bench.runner.recall(lease.key) is not None:
        bench.until(lease.key, Condition.VANISHED)


def test_3_a_lease_goes_forwards_only_and_stays_over(bench: Bench) -> None:
    lease = bench.launch(Does.TRAIN)
    bench.world.let_end()
    conditions = []

    def over() -> bool:
        bench.world.rest(0.05)
        conditions.append(bench.sight(lease.key).condition)
        return conditions[-1] in OVER

    wait_for(over, "the end of a lease")
    for _ in range(20):
        over()

    steps = [ORDER.index(condition) for condition in conditions if condition is not Condition.UNSEEN]
    assert steps == sorted(steps)
    assert conditions[-1] is Condition.ENDED


def test_4_a_lease_that_is_over_runs_no_more(bench: Bench) -> None:
    lease = bench.launch(Does.TRAIN)
    bench.until(lease.key, Condition.RUNNING)
    bench.runner.kill(lease)

    bench.until(lease.key, *OVER)

    assert bench.world.alive("a") == 0


def test_5_a_lease_that_has_not_begun_can_be_revoked_and_then_never_begins(bench: Bench) -> None:
    needs(bench, "unbegun")
    lease = bench.lease(Does.TRAIN)
    bench.world.launch_unbegun(lease)
    assert bench.sight(lease.key).condition in (Condition.NEVER_CLAIMED, Condition.QUEUED)

    assert bench.runner.revoke(lease.key)
    assert bench.runner.revoke(lease.key)  # as often as one likes

    assert bench.until(lease.key, *OVER).condition is Condition.VANISHED
    assert bench.world.alive("a") == 0


def test_5_a_lease_that_runs_cannot_be_revoked(bench: Bench) -> None:
    lease = bench.launch(Does.TRAIN)
    bench.until(lease.key, Condition.RUNNING)

    assert not bench.runner.revoke(lease.key)

    assert bench.world.alive("a") == 1
    assert bench.sight(lease.key).condition is Condition.RUNNING


def test_6_commands_can_be_repeated_and_come_too_late(bench: Bench) -> None:
    lease = bench.launch(Does.TRAIN)
    bench.until(lease.key, Condition.RUNNING)
    bench.ask_to_stop(lease)
    for _ in range(2):
        bench.runner.ask_to_stop(lease)
    end = bench.until(lease.key, *OVER)

    bench.runner.ask_to_stop(lease)
    bench.runner.kill(lease)
    bench.runner.revoke(lease.key)

    again = bench.sight(lease.key)
    assert (again.condition, again.code) == (end.condition, end.code)
    assert end.asked


def test_6_nobody_hears_a_request_to_stop_before_the_lease_begins(bench: Bench) -> None:
    needs(bench, "unbegun")
    lease = bench.lease(Does.TRAIN)
    bench.world.launch_unbegun(lease)

    assert not bench.runner.ask_to_stop(lease)


def test_7_a_look_at_what_was_never_launched_shows_nothing_that_runs(bench: Bench) -> None:
    assert bench.sight(("nobody", 1)).condition in (Condition.UNSEEN, Condition.NEVER_CLAIMED)
    assert bench.runner.look([]).sights == {}


def test_8_another_runner_knows_what_this_one_did(bench: Bench) -> None:
    lease = bench.launch(Does.TRAIN)
    assert bench.runner.recall(lease.key) == lease
    assert bench.runner.recall(("a", 2)) is None
    assert (set(bench.runner.jobs()), list(bench.runner.numbers("a"))) == ({"a"}, [1])
    assert list(bench.runner.numbers("nobody")) == []
    bench.until(lease.key, Condition.RUNNING)
    bench.ask_to_stop(lease)

    bench.runner = bench.world.again()

    assert bench.runner.recall(lease.key) == lease
    assert (set(bench.runner.jobs()), list(bench.runner.numbers("a"))) == ({"a"}, [1])
    end = bench.until(lease.key, *OVER)
    assert end.asked
    assert end.code in (85, 128 + 15)  # a script that had not come up yet dies of the signal


def test_8_a_reader_knows_the_exit_code_once_there_is_one(bench: Bench) -> None:
    lease = bench.launch(Does.TRAIN)
    bench.until(lease.key, Condition.RUNNING)
    assert bench.world.reader.exit_code(lease.key) is None
    bench.world.let_end()
    end = bench.until(lease.key, *OVER)

    assert bench.world.reader.exit_code(lease.key) == end.code == 0


def test_8_a_reader_reads_a_log_from_any_place(bench: Bench) -> None:
    needs(bench, "processes")
    lease = bench.launch(Does.TRAIN)
    assert bench.world.reader.read_log(("a", 2), 0, 100) == b""
    bench.world.let_end()
    bench.until(lease.key, *OVER)

    assert bench.world.reader.read_log(lease.key, 0, 100) == b"from 0\n"
    assert bench.world.reader.read_log(lease.key, 5, 100) == b"0\n"
    assert bench.world.reader.read_log(lease.key, 0, 4) == b"from"
    assert bench.world.reader.read_log(lease.key, 7, 100) == b""


def test_9_a_lease_whose_gpus_are_in_use_begins_when_they_are_free(bench: Bench) -> None:
    needs(bench, "queue")
    first = bench.lease(Does.TRAIN, "a", spot=((SLOW, 1),))
    second = bench.lease(Does.TRAIN, "b", spot=((SLOW, 1),))
    bench.runner.launch(first)
    bench.until(first.key, Condition.RUNNING)

    bench.runner.launch(second)
    assert bench.until(second.key, Condition.QUEUED).reason
    bench.runner.kill(first)
    bench.until(second.key, Condition.RUNNING)

    assert bench.sight(first.key).condition in OVER


def test_9_a_runner_that_queues_must_pick_devices() -> None:
    with pytest.raises(ValueError, match="must pick devices"):
        Capabilities(queues=True)


def test_10_the_processes_of_a_gang_know_each_other(bench: Bench) -> None:
    """More of it in `test_ranks.py`."""
    needs(bench, "processes")
    lease = bench.lease(Does.TRAIN, spot=((FAST, 2), (SLOW, 1)))
    command = replace(lease.command, run="echo $RANK of $WORLD_SIZE", processes="per-node")
    bench.runner.launch(replace(lease, command=command))

    assert bench.until(lease.key, *OVER).code == 0
    assert sorted(bench.world.reader.read_log(lease.key, 0, 100).split(b"\n")) == [b"", b"0 of 2", b"1 of 2"]
