"""The worker side, for training scripts: three calls make a script resumable. Needs only the standard library.

    from fairlead import lease

    saved = lease.restore()                       # folder of the newest checkpoint, or None
    for step in range(first, last):
        ...
        lease.report(step + 1)                    # progress in steps, or samples=...
        if lease.should_stop():                   # another job gets the GPUs
            lease.stop(lambda folder: torch.save(state, folder / "state.pt"))

`checkpoint` saves without stopping, as often as the script likes. In a script that runs without Fairlead there is no
checkpoint to restore, nothing asks it to stop, and nothing is reported or saved.
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

Write = Callable[[Path], object]  # writes its files into the folder


def restore() -> Path | None:
    """The folder of the newest checkpoint, from whichever lease wrote it; None if there is none.

    Call it first and in the main thread: from then on a signal to stop is recorded and no longer ends the process.
    """
    worker = _worker()
    return None if worker is None else worker.restore()


def report(step: float | None = None, samples: float | None = None, parts: Mapping[str, float] | None = None) -> None:
    """Report the job's progress since its first start. On an emulated GPU this call also waits.

    A step is one at the job's reference width; a script whose steps grow with its GPUs reports samples instead.
    `fairlead profile` records the `parts` of an iteration (`forward_s`, `backward_s`, ..., as in a profile).
    """
    worker = _worker()
    if worker is not None:
        worker.report(step, samples, parts)


def should_stop() -> bool:
    """Whether to save and exit now: a signal arrived, or the stop file exists (checked once a second at most)."""
    worker = _worker()
    return worker is not None and worker.should_stop()


def checkpoint(write: Write) -> Path | None:
    """Save what `write` puts into a folder as the state of the last report. It is atomic, and on disk on return.

    Raises SupersededError if a later lease of the job has begun: this process was given up and must end.
    """
    worker = _worker()
    return None if worker is None else worker.checkpoint(write)


def stop(write: Write | None = None) -> NoReturn:
    """Save if `write` is passed, and exit with the code for "not finished, continue from the checkpoint".

    Handlers and `finally` blocks run as usual, and files are written out, but objects are not finalised.
    """
    worker = _worker()
    if worker is None:
        raise SystemExit(0)
    if write is not None:
        worker.checkpoint(write)
    worker.leave()


def tasks() -> tuple[int, ...]:
    """The tasks of a round on each granted GPU, in the order of CUDA_VISIBLE_DEVICES; empty without Fairlead."""
    worker = _worker()
    return () if worker is None else worker.tasks


def emulated() -> bool:
    """Whether the GPUs are emulated, so that no speed measured here is real."""
    worker = _worker()
    return worker is not None and worker.emulated


def tasks_by_process() -> tuple[int, ...]:
    """`tasks` by rank if Fairlead started a process for each node or GPU (`processes` in the job file); else empty."""
    worker = _worker()
    return () if worker is None else worker.tasks_by_process


@cache
def _worker() -> Worker | None:
    return find_worker()
