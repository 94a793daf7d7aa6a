"""Keeps the scheduler process running: starts and wakes it, restarts it when it dies, and gives up if that is no use."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fairlead.service.api.scheduler_state import SchedulerState
from fairlead.service.process.scheduler import FULL, REFUSED, SchedulerOptions
from fairlead.service.store.directory import StateDirectory
from fairlead.service.telemetry.scheduler_figures import Measurements, SchedulerFigures, measurements_from_json

ORDERLY_END_S = 10.0  # for a scheduler to finish its commit and to write a snapshot
KILLED_END_S = 2.0
_DECISIONS_TIMED = 1000  # the last ones, for the pages of decisions
_BUSY_S = 5.0  # by which a decision may be late on a busy machine, in addition to its deadline


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a scheduler that keeps dying is restarted, and after which pauses."""

    deaths: int = 8  # in a row
    short_life_s: float = 10.0  # after it was ready; a process that never was ready counts as dead at once
    first_pause_s: float = 0.1
    longest_pause_s: float = 10.0


@dataclass(frozen=True, slots=True)
class _End:
    """How a process ended. `final`: a restart would not help. `counts` is false for a full disk, which may be freed."""

    reason: str
    final: bool = False
    counts: bool = True


class Supervisor:
    """Supervises the scheduler; `gave_up` is called once, with the reason, if it cannot be kept running."""

    def __init__(
        self,
        directory: StateDirectory,
        plan: SchedulerOptions,
        gave_up: Callable[[str], None],
        patience: Patience | None = None,
    ) -> None:
        self._command = [
            sys.executable,
            "-m",
            "fairlead.service.process.scheduler",
            str(directory.path),
            plan.to_json(),
        ]
        self._gave_up = gave_up
        self.watched: Callable[[list[dict[str, Any]]], None] = lambda rows: None  # takes jobs of another scheduler
        self._patience = patience or Patience()
        self._process: subprocess.Popen[str] | None = None
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._ready_s = math.inf  # when the current process was ready
        self._starts = 0
        self._reported = SchedulerState()  # by the current process
        self._measurements = Measurements()
        self._took_s: dict[float, float] = {}  # the last decisions: when each was made -> how long it took
        self._decided_s: float | None = None  # the last decision of the current process
        self._due_s = math.inf  # its next round
        self._late_s = plan.decide_within_s + _BUSY_S
        self._thread = threading.Thread(target=self._keep, name="scheduler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_until_ready(self, timeout_s: float) -> bool:
        """Whether the scheduler is ready; False after the timeout, or once `gave_up` has been called."""
        return self._ready.wait(timeout_s) and not self._stopping.is_set()

    def wake(self) -> None:
        """Announce a commit to the scheduler."""
        process = self._process
        if process is not None and process.stdin is not None:
            # The pipe may be full of announcements, or the process dead; then its successor reads without being woken.
            with suppress(OSError, ValueError):
                os.write(process.stdin.fileno(), b".")

    def state(self) -> SchedulerState:
        ready, now_s, decided_s = (
            self._ready.is_set() and not self._stopping.is_set(),
            time.monotonic(),
            self._decided_s,
        )
        return replace(
            self._reported,
            ready=ready,
            restarts=max(self._starts - 1, 0),
            decision_age_s=None if decided_s is None else now_s - decided_s,
            decision_overdue=now_s > self._due_s + self._late_s,
        )

    def took_s(self, at_s: float) -> float | None:
        """How long the decision of that time took, if it is one of the last ones; the log has no such timings."""
        return self._took_s.get(at_s)

    def figures(self) -> SchedulerFigures:
        """The same for metrics, with what the current process has measured."""
        state = self.state()
        return SchedulerFigures(
            state.ready,
            state.restarts,
            state.decision_age_s,
            state.decision_overdue,
            state.policy_failed,
            self._measurements,
        )

    def close(self) -> None:
        """End the scheduler, if necessary by force; jobs keep running."""
        self._stopping.set()
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        self._thread.join(ORDERLY_END_S)
        self.kill()
        self._thread.join(KILLED_END_S)

    def kill(self) -> None:
        """Kill a scheduler that has not ended by itself."""
        process = self._process
        if process is not None:
            process.kill()  # does nothing once its end is known

    def _keep(self) -> None:
        deaths, pause_s, patience = 0, self._patience.first_pause_s, self._patience
        while not self._stopping.is_set():
            self._ready_s = math.inf
            end = self._live()
            if self._stopping.is_set():
                return
            if time.monotonic() - self._ready_s >= patience.short_life_s:
                deaths, pause_s = 0, patience.first_pause_s / 2
            deaths, pause_s = deaths + end.counts, min(pause_s * 2, patience.longest_pause_s)
            if end.final or deaths >= patience.deaths:
                self._stopping.set()
                self._gave_up(end.reason if end.final else f"the scheduler died {deaths} times in a row; {end.reason}")
                self._ready.set()  # ends all waiting; callers then find the reason
                return
            self._stopping.wait(pause_s)

    def _note_decision(self, decision_s: float, at_s: float | None, warm: Any) -> None:
        slowest_s = max(decision_s, self._reported.slowest_decision_s or 0.0)
        self._reported = replace(self._reported, decision_s=decision_s, slowest_decision_s=slowest_s, warm=warm)
        if at_s is not None:
            self._took_s[at_s] = decision_s
            if len(self._took_s) > _DECISIONS_TIMED:
                del self._took_s[next(iter(self._took_s))]
        self._decided_s = time.monotonic()
        self._due_s = min(self._due_s, self._decided_s)  # until it is applied, which the next due_in_s reports

    def _live(self) -> _End:
        """Run one scheduler process from its start to its end."""
        try:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=scrubbed(dict(os.environ))
            )
        except OSError as error:  # no memory, no process, no file descriptor left
            return _End(f"it could not be started ({error})")
        assert process.stdin is not None, "we asked for a pipe"
        assert process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        self._process, self._starts = process, self._starts + 1
        if self._stopping.is_set():
            process.stdin.close()
        refusal: str | None = None
        for line in process.stdout:
            message = _message(line)
            refusal = message.get("refused", refusal)
            if message.get("ready", False):
                self._decided_s, self._due_s = None, math.inf
                self._reported = SchedulerState(start_s=message.get("start_s"))
                self._ready_s = time.monotonic()
                self._ready.set()
            elif "decision_s" in message:
                self._note_decision(message["decision_s"], message.get("at_s"), message.get("warm"))
            elif "measurements" in message:
                self._measurements = measurements_from_json(message["measurements"])
            elif "watched" in message:
                self.watched(message["watched"])
            elif "watching" in message:
                self._reported = replace(self._reported, watching=tuple(message["watching"]))
            elif "engine_trouble" in message:
                self._reported = replace(self._reported, engine_trouble=message["engine_trouble"])
            elif "policy_failed" in message:
                self._reported = replace(self._reported, policy_failed=message["policy_failed"])
            elif "due_in_s" in message:
                due_in_s = message["due_in_s"]
                self._due_s = math.inf if due_in_s is None else time.monotonic() + due_in_s
        code = process.wait()
        if not self._stopping.is_set():
            self._ready.clear()
            with suppress(OSError):
                process.stdin.close()
        process.stdout.close()
        if code == REFUSED and refusal is not None:
            return _End(refusal, final=True)
        return _End("its last messages are above", counts=code != FULL)


def _message(line: str) -> dict[str, Any]:
    """The message in a line; a line that a library printed is passed on to stderr."""
    with suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    sys.stderr.write(line)
    return {}


def scrubbed(environment: dict[str, str]) -> dict[str, str]:
    """The environment without variables that are for the API only."""
    return {key: value for key, value in environment.items() if key not in ("FAIRLEAD_TOKEN",)}
