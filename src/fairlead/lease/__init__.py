"""The worker side: three lines in a training script. It needs nothing but the standard library.

    from fairlead import lease

    saved = lease.restore()                       # folder of the newest checkpoint, or None
    for step in range(first, last):
        ...
        lease.report(step + 1)                    # how far it is: steps, or samples=...
        if lease.should_stop():                   # somebody else gets the GPUs
            lease.stop(lambda folder: torch.save(state, folder / "state.pt"))

`checkpoint` saves without stopping, as often as the script likes. A script that runs on its own, without Fairlead, finds
no checkpoint, is never asked to stop, and reports and saves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

from fairlead.lease.worker import SupersededError, Worker, find_worker

__all__ = [
    "SupersededError",
    "checkpoint",
    "emulated",
    "report",
    "restore",
    "should_stop",
    "stop",
    "tasks",
    "tasks_by_process",
]

Write = Callable[[Path], object]  # writes its files into the folder that it is given


def restore() -> Path | None:
    """The folder of the newest checkpoint, written by whichever lease came last; None where there is none.

    Call it first, and in the main thread: from then on a request to stop is noted rather than deadly.
    """
    worker = _worker()
    return None if worker is None else worker.restore()


def report(step: float | None = None, samples: float | None = None, parts: Mapping[str, float] | None = None) -> None:
    """How far the job is since its very first start. A step is one at the job's reference width; a script whose steps
    grow with its GPUs reports samples instead. On an emulated GPU this is where it waits.

    `parts` of an iteration (`forward_s`, `backward_s`, ..., as a profile has them) are what `fairlead profile` writes down.
    """
    worker = _worker()
    if worker is not None:
        worker.report(step, samples, parts)


def should_stop() -> bool:
    """Whether to save and leave now: a signal came, or a stop file is there, which is looked at once a second at most."""
    worker = _worker()
    return worker is not None and worker.should_stop()


def checkpoint(write: Write) -> Path | None:
    """Saves what `write` puts into a folder, as of the last report: all of it or nothing, and on disk when this returns.

    Raises SupersededError where a later lease of the job has begun: this copy was given up and must end.
    """
    worker = _worker()
    return None if worker is None else worker.checkpoint(write)


def stop(write: Write | None = None) -> NoReturn:
    """Saves if `write` is passed, and ends with the exit code for "not finished, continue from the checkpoint"."""
    worker = _worker()
    if worker is None:
        raise SystemExit(0)
    if write is not None:
        worker.checkpoint(write)
    worker.leave()


def tasks() -> tuple[int, ...]:
    """How many of a training round's tasks each granted GPU runs, in the order of CUDA_VISIBLE_DEVICES; empty outside."""
    worker = _worker()
    return () if worker is None else worker.tasks


def emulated() -> bool:
    """Whether the GPUs are slots with an emulated pace, so that no speed measured here is real."""
    worker = _worker()
    return worker is not None and worker.emulated


def tasks_by_process() -> tuple[int, ...]:
    """The same by rank, where Fairlead started a process for each node or GPU (`processes` in the job file); else empty."""
    worker = _worker()
    return () if worker is None else worker.tasks_by_process


@cache
def _worker() -> Worker | None:
    return find_worker()
