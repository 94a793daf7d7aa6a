"""The time of the log, and the live engine on it, while the wall clock is set back and forth."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engine_world import Does
from virtual_world import Clock, VirtualWorld

from fairlead.engines.clock import ClockReading, LogClock, MachineClocks, log_time_s
from fairlead.model.events import Started, Stopped

TEN_MINUTES_S, HOURS_S = 600.0, 5 * 3600.0


class Machine:
    """A machine whose wall clock can be set, and that can be booted again."""

    def __init__(self) -> None:
        self.steady = Clock()
        self.offset_s = 1_000_000.0
        self.boot = "first"

    def clocks(self) -> MachineClocks:
        return MachineClocks(lambda: self.steady.now_s + self.offset_s, self.steady, self.boot)

    def clock(
        self, last: ClockReading | None = None, at_least_s: float = 0.0, idle: Callable[[], bool] = lambda: False
    ) -> LogClock:
        return LogClock(last, at_least_s, idle, self.clocks())


class SteppedWorld(VirtualWorld):
    """A virtual world with the clock of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()
        self.machine.steady = self.clock
        self._clock = LogClock(None, 0.0, lambda: not self.state.active, self.machine.clocks())
        self.connect()


@pytest.mark.parametrize("step_s", [-TEN_MINUTES_S, HOURS_S])
def test_durations_do_not_depend_on_steps_of_the_wall_clock(step_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    before_s = clock()

    machine.steady.rest(3.0)
    machine.offset_s += step_s
    machine.steady.rest(4.0)

    assert clock() - before_s == pytest.approx(7.0)


def test_a_clock_without_active_jobs_catches_up_with_the_wall_clock() -> None:
    machine = Machine()
    clock = machine.clock(idle=lambda: True)
    machine.offset_s += HOURS_S

    assert clock() == machine.clocks().wall()


def test_a_clock_without_active_jobs_waits_for_a_wall_clock_that_was_set_back() -> None:
    machine = Machine()
    clock = machine.clock(idle=lambda: True)
    before_s = clock()
    machine.offset_s -= TEN_MINUTES_S

    machine.steady.rest(TEN_MINUTES_S / 2)
    assert clock() == before_s
    machine.steady.rest(TEN_MINUTES_S)
    assert clock() == machine.clocks().wall()


@pytest.mark.parametrize("step_s", [-TEN_MINUTES_S, HOURS_S])
def test_a_restart_continues_the_steady_time(step_s: float) -> None:
    machine = Machine()
    reading = machine.clock().reading()
    machine.offset_s += step_s
    machine.steady.rest(30.0)

    assert machine.clock(reading)() == pytest.approx(reading.log_s + 30.0)


def test_after_a_boot_the_time_is_that_of_the_wall_clock() -> None:
    machine = Machine()
    reading = machine.clock().reading()
    machine.boot = "second"
    machine.steady.now_s = 1.0
    machine.offset_s += 500.0

    assert machine.clock(reading)() == machine.clocks().wall()


def test_after_a_boot_with_an_early_wall_clock_the_time_is_not_before_the_last_record() -> None:
    machine = Machine()
    reading = machine.clock().reading()
    machine.boot = "second"
    machine.offset_s -= HOURS_S

    assert machine.clock(reading, at_least_s=reading.log_s)() == reading.log_s


def test_another_process_knows_the_time_of_the_log_although_the_wall_clock_was_set() -> None:
    machine = Machine()
    clock = machine.clock()
    reading = clock.reading()
    machine.offset_s += HOURS_S
    machine.steady.rest(10.0)

    assert log_time_s(reading, machine.clocks()) == clock()


def test_grace_is_enforced_although_the_wall_clock_is_set_back() -> None:
    world = SteppedWorld()
    world.add("a", Does.DEAF)
    world.start("a")
    world.until(Started, "a")
    world.stop("a")
    asked_s = world.clock.now_s

    world.machine.offset_s -= TEN_MINUTES_S
    world.until(Stopped, "a")

    assert world.clock.now_s - asked_s < 3.0  # a grace of two seconds


def test_a_round_begins_on_time_although_the_wall_clock_is_set_back() -> None:
    world = SteppedWorld()
    world.add("a", Does.TRAIN)
    until_s, before_s = world.engine.now() + 60.0, world.clock.now_s

    world.machine.offset_s -= TEN_MINUTES_S
    while world.engine.now() < until_s:
        world.engine.wait(until_s)

    assert world.clock.now_s - before_s == pytest.approx(60.0, abs=0.1)


@pytest.mark.parametrize("step_s", [-TEN_MINUTES_S, HOURS_S])
def test_gpu_hours_are_right_although_the_wall_clock_is_set(step_s: float) -> None:
    world = SteppedWorld()
    world.add("a", Does.DEAF)
    began_s = world.clock.now_s
    world.start("a")
    world.until(Started, "a")

    world.machine.offset_s += step_s
    world.settle(100.0)
    world.stop("a")

    j = world.state.position["a"]
    assert world.state.attained_gpu_s[j] == pytest.approx(world.clock.now_s - began_s, abs=0.5)
