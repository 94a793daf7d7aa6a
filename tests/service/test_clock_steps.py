"""Times and durations that the store reports while the wall clock is set back and forth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fairlead.engines.clock import MachineClocks
from fairlead.engines.local.files import LocalReader
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived
from fairlead.model.jobs import JobSpec
from fairlead.service.store.database import open_writer
from fairlead.service.store.directory import StateDirectory, make, open_directory
from fairlead.service.store.log import Log, open_log
from fairlead.service.store.reads import Reads
from fairlead.service.store.tables import EVENTS
from serving import header


class Machine:
    """A machine whose wall clock can be set."""

    def __init__(self) -> None:
        self.steady_s, self.wall_s = 50.0, 1_000_000.0

    def rest(self, seconds: float) -> None:
        self.steady_s += seconds
        self.wall_s += seconds

    def clocks(self) -> MachineClocks:
        return MachineClocks(lambda: self.wall_s, lambda: self.steady_s, "boot")


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    directory = open_directory(tmp_path / "state")
    make(directory, header())
    return directory


def start_job(log: Log) -> None:
    """A job that gets one GPU now."""
    arrived = Arrived(log.clock(), JobSpec("j1", "t", "mine", log.clock(), 1, None))
    log.event(arrived)
    log.state.fold(arrived)
    one = np.array([0])
    decision = Decision(log.clock(), Cause.EVENT, np.array([], dtype=np.int64), one, (((0, 1),),), float("inf"), "")
    log.decision(decision)
    log.state.fold(decision)
    log.commit(0)


@pytest.mark.parametrize("step_s", [-600.0, 5 * 3600.0])
def test_gpu_hours_of_a_running_job_are_right_although_the_wall_clock_is_set(
    directory: StateDirectory, step_s: float
) -> None:
    machine = Machine()
    connection = open_writer(directory.events, EVENTS)
    start_job(open_log(connection, machine.clocks()))

    machine.wall_s += step_s
    machine.rest(3600.0)

    reads = Reads(directory, LocalReader(directory.path), machine.clocks())
    assert reads.by_tenant()["t"].gpu_hours == pytest.approx(1.0)
    reads.close()
    connection.close()


@pytest.mark.parametrize("step_s", [-600.0, 5 * 3600.0])
def test_a_restart_after_the_wall_clock_was_set_continues_the_time_of_the_log(
    directory: StateDirectory, step_s: float
) -> None:
    machine = Machine()
    connection = open_writer(directory.events, EVENTS)
    log = open_log(connection, machine.clocks())
    start_job(log)
    before_s = log.clock()
    connection.close()

    machine.wall_s += step_s
    machine.rest(20.0)

    connection = open_writer(directory.events, EVENTS)
    assert open_log(connection, machine.clocks()).clock() == pytest.approx(before_s + 20.0)
    connection.close()
