"""One process of a lease: its signals, its reports, its pace."""

from __future__ import annotations

import atexit
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from fairlead.lease.checkpoints import Checkpoints, SupersededError
from fairlead.model.handshake import CHECKPOINTED, LEASE_VARIABLE, REPORT_VARIABLE

__all__ = ["SupersededError", "Worker", "find_worker"]

KIND = "progress/1"
REPORT_EVERY_S = 0.2
_NAP_S = 0.05  # how soon a worker that waits for its emulated pace notices that it should stop


def find_worker() -> Worker | None:
    """None where Fairlead did not start us."""
    path = os.environ.get(LEASE_VARIABLE)
    if not path:
        return None
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    return Worker(found, os.environ.get(REPORT_VARIABLE), rank=int(os.environ.get("RANK", "0")))


class Worker:
    """Of several ranks, only rank 0 reports and saves."""

    def __init__(self, found: dict[str, Any], report_to: str | None, rank: int = 0) -> None:
        self.tasks: tuple[int, ...] = tuple(gpu["tasks"] for gpu in found["gpus"])
        self.emulated: bool = found["emulated"]
        self.asked = False
        self._rank = rank
        self._report_to = None if report_to is None or rank else Path(report_to)
        self._checkpoints = Checkpoints(Path(found["checkpoint_dir"]), found["number"])
        self._said: dict[str, float | None] = dict.fromkeys(("step", "samples", "saved_step", "saved_samples"))
        self._parts: dict[str, float] | None = None
        self._at_s = self._written_s = -REPORT_EVERY_S
        paces: Sequence[float] = found["pace"] or [1.0] * len(self.tasks)
        self._pace = _pace(paces, self.tasks, rank)
        self._worked_from_s = time.monotonic()
        for number in (signal.SIGTERM, signal.SIGUSR1):
            with suppress(ValueError):  # not in the main thread
                signal.signal(number, self._note)
        atexit.register(self._write)

    def _note(self, number: int, frame: object) -> None:
        self.asked = True

    def restore(self) -> Path | None:
        folder, about = self._checkpoints.newest()
        for name in ("step", "samples"):
            self._said[name] = self._said[f"saved_{name}"] = about.get(name)
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
        self._said["step"], self._said["samples"] = step, samples
        if self._at_s >= self._written_s + REPORT_EVERY_S:
            self._write()

    def checkpoint(self, write: Callable[[Path], object]) -> Path | None:
        if self._rank:
            return None
        about = {name: self._said[name] for name in ("step", "samples")}
        folder = self._checkpoints.save(write, about)
        self._said["saved_step"], self._said["saved_samples"] = about["step"], about["samples"]
        self._write()
        return folder

    def leave(self) -> NoReturn:
        self._write()
        raise SystemExit(CHECKPOINTED)

    def _keep_pace(self) -> None:
        """Sleeps as much longer than it worked as the emulated GPU is slower."""
        if self._pace >= 1:
            return
        now_s = time.monotonic()
        until_s = now_s + (now_s - self._worked_from_s) * (1 / self._pace - 1)
        while not self.asked and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _NAP_S))
        self._worked_from_s = time.monotonic()

    def _write(self) -> None:
        """The whole report or none of it; a full disk must not stop the training."""
        if self._report_to is None or self._at_s < 0:
            return
        self._written_s = time.monotonic()
        draft = self._report_to.with_suffix(".draft")
        with suppress(OSError):
            told = {"fairlead": KIND, "at_s": self._at_s, **self._said, "parts": self._parts}
            draft.write_text(json.dumps(told), encoding="utf-8")
            draft.replace(self._report_to)


def _pace(paces: Sequence[float], tasks: Sequence[int], rank: int) -> float:
    """1 = as fast as this machine. A process that stands for the whole gang waits for its slowest GPU, which runs c tasks
    one after another where a gang of the reference width runs one; of several ranks each runs its own tasks for real.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return paces[rank] if rank < len(paces) else 1.0
    return min(pace / count for pace, count in zip(paces, tasks, strict=True) if count)
