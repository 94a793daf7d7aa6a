"""One process of a lease: requests to stop, progress reports, and the emulated pace."""

from __future__ import annotations

import atexit
import gc
import io
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from fairlead.lease.checkpoints import Checkpoints, SupersededError
from fairlead.model.handshake import (
    CHECKPOINTED,
    LEASE_VARIABLE,
    REPORT_EVERY_VARIABLE,
    REPORT_VARIABLE,
    STOP_VARIABLE,
)

__all__ = ["SupersededError", "Worker", "find_worker"]

KIND = "progress/1"
REPORT_EVERY_S = 0.2  # unless the engine sets another interval
STOP_CHECK_S = 1.0  # between two checks of the stop file, which may be on a shared file system
_REQUESTS = (signal.SIGTERM, signal.SIGUSR1)
_WORK_GROWTH = 1.1  # by which the work of a rank may grow from step to step before it counts as waiting
_IO_BASE = io.IOBase.__mro__[1]  # of all files, however they are wrapped
_NAP_S = 0.05  # how soon a worker that waits for its emulated pace notices that it should stop


def find_worker() -> Worker | None:
    """The worker of this process; None if Fairlead did not start it."""
    path = os.environ.get(LEASE_VARIABLE)
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return Worker(json.load(file), os.environ)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RuntimeError(f"{path} no longer describes a lease ({error!r}); the job cannot continue") from error


class Worker:
    """One process of a lease. Of several ranks, only rank 0 reports and saves."""

    def __init__(self, lease: dict[str, Any], env: Mapping[str, str]) -> None:
        ranks: Sequence[Sequence[int]] = lease.get("ranks") or ()
        self.tasks: tuple[int, ...] = tuple(gpu["tasks"] for gpu in lease["gpus"])
        self.tasks_by_process: tuple[int, ...] = tuple(sum(self.tasks[gpu] for gpu in gpus) for gpus in ranks)
        self.emulated: bool = lease["emulated"]
        self._rank = int(env.get("RANK", "0"))
        self._report_to = Path(env[REPORT_VARIABLE]) if REPORT_VARIABLE in env and not self._rank else None
        self._report_every_s = float(env.get(REPORT_EVERY_VARIABLE, REPORT_EVERY_S))
        self._stop_file = env.get(STOP_VARIABLE)
        self._stop_checked_s = -STOP_CHECK_S
        self._stop_requested = False
        self._checkpoints = Checkpoints(Path(lease["checkpoint_dir"]), lease["number"])
        self._progress: dict[str, float | None] = dict.fromkeys(("step", "samples", "saved_step", "saved_samples"))
        self._parts: dict[str, float] | None = None
        self._at_s = self._written_s = -self._report_every_s
        paces: Sequence[float] = lease["pace"] or [1.0] * len(self.tasks)
        self._pace = _pace(paces, self.tasks, _gpus_of(self._rank, int(env.get("WORLD_SIZE", "1")), ranks, paces))
        self._in_gang = int(env.get("WORLD_SIZE", "1")) > 1
        self._work_s = math.inf  # of a step of this process, without waiting for others
        self._worked_from_s = time.monotonic()
        for number in _REQUESTS:
            with suppress(ValueError):  # only the main thread can handle signals; other threads rely on the stop file
                signal.signal(number, self._request_stop)
        atexit.register(self._end)

    def _request_stop(self, number: int, frame: object) -> None:
        self._stop_requested = True

    def _end(self) -> None:
        """The script has ended: a request to stop comes too late, and must not change how it ended.

        Finalising, an interpreter gives signals that it handles their usual meaning back, which is death.
        """
        for number in _REQUESTS:
            signal.signal(number, signal.SIG_IGN)
        self._write()

    def should_stop(self) -> bool:
        """Whether to stop. The stop file is for threads, and for programs whose shell forwards no signal."""
        if not self._stop_requested and self._stop_file is not None:
            now_s = time.monotonic()
            if now_s >= self._stop_checked_s + STOP_CHECK_S:
                self._stop_checked_s = now_s
                self._stop_requested = os.path.exists(self._stop_file)
        return self._stop_requested

    def restore(self) -> Path | None:
        folder, about = self._checkpoints.newest()
        for name in ("step", "samples"):
            self._progress[name] = self._progress[f"saved_{name}"] = about.get(name)
        if folder is not None:
            self._at_s = time.monotonic()
            self._write()
        self._worked_from_s = time.monotonic()
        return folder

    def report(self, step: float | None, samples: float | None, parts: Mapping[str, float] | None = None) -> None:
        self._keep_pace()
        if parts is not None:  # times are those of the emulated GPU, like the steps
            slower = max(1.0, 1.0 / self._pace)
            self._parts = {name: value * slower if name.endswith("_s") else value for name, value in parts.items()}
        self._at_s = time.monotonic()
        self._progress["step"], self._progress["samples"] = step, samples
        if self._at_s >= self._written_s + self._report_every_s:
            self._write()

    def checkpoint(self, write: Callable[[Path], object]) -> Path | None:
        if self._rank:
            return None
        about = {name: self._progress[name] for name in ("step", "samples")}
        folder = self._checkpoints.save(write, about)
        self._progress["saved_step"], self._progress["saved_samples"] = about["step"], about["samples"]
        self._write()
        return folder

    def leave(self) -> NoReturn:
        """End the process, also from a thread, where SystemExit would end only the thread.

        The GPUs are free once it has ended. Most of that time an interpreter with PyTorch would search for reference
        cycles to clean up (1.2 CPU seconds instead of 0.2); it does not find any if all objects are frozen.
        """
        self._write()
        _flush_files()
        gc.freeze()
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(CHECKPOINTED)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(CHECKPOINTED)

    def _keep_pace(self) -> None:
        """Sleep for the extra time that the emulated GPU would have needed."""
        if self._pace >= 1:
            return
        now_s = time.monotonic()
        passed_s = now_s - self._worked_from_s
        self._work_s = own_work_s(passed_s, self._work_s) if self._in_gang else passed_s
        until_s = now_s + self._work_s * (1 / self._pace - 1)
        while not self.should_stop() and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _NAP_S))
        self._worked_from_s = time.monotonic()

    def _write(self) -> None:
        """Write the report atomically; a full disk must not stop the training."""
        if self._report_to is None or self._at_s < 0:
            return
        self._written_s = time.monotonic()
        draft = self._report_to.with_suffix(".draft")
        with suppress(OSError):
            report = {"fairlead": KIND, "at_s": self._at_s, **self._progress, "parts": self._parts}
            draft.write_text(json.dumps(report), encoding="utf-8")
            draft.replace(self._report_to)


def own_work_s(passed_s: float, before_s: float) -> float:
    """Seconds of a rank's own work in a step that took `passed_s`; `before_s` is that of the step before.

    A rank also waits for the others, and ranks that slow down in proportion to waiting slow each other down more with
    every step. Waiting only adds time, so the shortest step counts; work that grows is followed slowly.
    """
    return min(passed_s, before_s * _WORK_GROWTH)


def _flush_files() -> None:
    """Write out what files still buffer, because frozen ones are not closed at the end of the process."""
    for thing in gc.get_objects():
        if _IO_BASE in type(thing).__mro__:
            with suppress(OSError, ValueError):  # such as a file that is closed
                thing.flush()


def _gpus_of(rank: int, world: int, ranks: Sequence[Sequence[int]], paces: Sequence[float]) -> Sequence[int]:
    """Positions of the GPUs of this process: all of them if it is the only one."""
    if world <= 1:
        return range(len(paces))
    if world == len(ranks):
        return ranks[rank]
    return [rank] if rank < len(paces) else []  # the script's own launcher made these ranks


def _pace(paces: Sequence[float], tasks: Sequence[int], gpus: Sequence[int]) -> float:
    """The speed to emulate, relative to this machine.

    A process that represents several GPUs waits for the slowest of them, which runs its c tasks in sequence where a
    gang of the reference width runs one. A process with one GPU of several runs all its tasks itself, and has nothing
    to slow down if there are none.
    """
    if len(gpus) == 1 and len(paces) > 1:
        return paces[gpus[0]] if tasks[gpus[0]] else 1.0
    return min((paces[gpu] / tasks[gpu] for gpu in gpus if tasks[gpu]), default=1.0)
