"""The time of the log: seconds since 1970 whose differences are durations, whatever happens to the wall clock.

The wall clock of a machine is set back and forth, so nothing is measured with it. While jobs are active the time of the
log advances with the machine's steady clock, which also counts while the machine sleeps. While none is, no duration
depends on it: it moves ahead to the wall clock, or waits for it, and never runs backwards.

Each commit stores a reading of both clocks, so that a restart on the same boot of the machine continues the steady time,
and other processes know the time of the log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path


def steady_s() -> float:
    """Seconds of the machine's steady clock, which also counts while it sleeps."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)  # Linux only
    return time.monotonic() if boot is None else time.clock_gettime(boot)


def boot_id() -> str:
    """The name of this boot of the machine; empty where it has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


@dataclass(frozen=True, slots=True)
class MachineClocks:
    """The clocks of a machine. Steady times of one boot can be compared; if `boot` is empty, only within a process."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = steady_s
    boot: str = ""


def machine_clocks() -> MachineClocks:
    return MachineClocks(boot=boot_id())


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The time of the log at a steady time."""

    log_s: float
    steady_s: float
    boot: str

    def to_line(self) -> str:
        return json.dumps(asdict(self))


def reading_from_line(line: str) -> ClockReading:
    return ClockReading(**json.loads(line))


def log_time_s(last: ClockReading | None, machine: MachineClocks) -> float:
    """The time of the log now, as far as another process can know: by the wall clock if the machine was booted since."""
    if last is None or not last.boot or last.boot != machine.boot:
        return machine.wall()
    return last.log_s + max(machine.steady() - last.steady_s, 0.0)


class LogClock:
    """The clock of the one writer of the log, which begins at `log_time_s` and not before `at_least_s`."""

    def __init__(
        self, last: ClockReading | None, at_least_s: float, idle: Callable[[], bool], machine: MachineClocks
    ) -> None:
        self._machine = machine
        self._idle = idle
        self._steady_s = machine.steady()
        self._now_s = max(log_time_s(last, machine), at_least_s)

    def __call__(self) -> float:
        before_s, self._steady_s = self._steady_s, self._machine.steady()
        if self._idle():
            self._now_s = max(self._now_s, self._machine.wall())
        else:
            self._now_s += max(self._steady_s - before_s, 0.0)
        return self._now_s

    def reading(self) -> ClockReading:
        return ClockReading(self(), self._steady_s, self._machine.boot)
