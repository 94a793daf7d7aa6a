"""Tasks in parallel processes of this machine. A task that fails, or takes its process down, fails alone."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any, Generic, TypeVar

from fairlead.model.errors import FairleadError
from fairlead.traces.formats import Trace

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T, R]):
    """The outcome of a task: its result, or the reason why there is none."""

    task: T
    result: R | None
    reason: str = ""


def run_in_processes(run: Callable[[T], R], tasks: Iterable[T], workers: int) -> Iterator[Outcome[T, R]]:
    """`ProcessPool.run` in processes that end with it."""
    with ProcessPool(workers) as pool:
        yield from pool.run(run, tasks)


class ProcessPool:
    """Processes that start when they are needed and serve one batch of tasks after the other, until the pool is left."""

    def __init__(self, workers: int) -> None:
        self._workers = max(workers, 1)
        self._idle: list[PoolProcess] = []

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        while self._idle:
            self._idle.pop().close()

    def run(self, run: Callable[[T], R], tasks: Iterable[T]) -> Iterator[Outcome[T, R]]:
        """Outcomes in the order in which they become available. Leaving early stops the processes that are busy.

        `run` and the tasks are sent to the processes, so `run` must be a function of a module. A task is taken when a
        process is free for it.
        """
        todo = iter(tasks)
        busy: dict[Any, tuple[PoolProcess, T]] = {}  # by the worker's pipe
        try:
            while True:
                for task in islice(todo, self._workers - len(busy)):
                    worker = self._start(run, task)
                    busy[worker.pipe] = worker, task
                if not busy:
                    return
                for pipe in wait(list(busy)):
                    worker, task = busy.pop(pipe)
                    result, reason = worker.take()
                    if worker.process.is_alive():
                        self._idle.append(worker)
                    else:
                        worker.close()
                    yield Outcome(task, result, reason)
        finally:
            for worker, _ in busy.values():
                worker.close()

    def _start(self, run: Callable[[T], R], task: T) -> PoolProcess:
        while True:
            worker = self._idle.pop() if self._idle else PoolProcess()
            if worker.start(run, task):
                return worker


def attempt(run: Callable[[T], R], task: T) -> tuple[R | None, str]:
    """The result, or the reason in one line."""
    try:
        return run(task), ""
    except Exception as error:  # an error in a policy becomes a line of the table and does not stop the other runs
        return None, reason_of(error)


def reason_of(error: BaseException) -> str:
    """What went wrong and where, short enough for a table. A mistake of the user is a sentence that needs no place."""
    if isinstance(error, FairleadError):
        return " ".join(str(error).split())[:300]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.rpartition('/')[2]} line {frames[-1].lineno})" if frames else ""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message[:300]}{where}" if message else f"{type(error).__name__}{where}"


class PoolProcess:
    """A process and our end of the pipe to it; it is spawned, so that it shares no solver and no thread with us.

    It keeps the workload of its last task, because the next one often differs in its policy only.
    """

    def __init__(self) -> None:
        self._kept: dict[int, Trace] = {}
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _without_main():
            self.process.start()
        theirs.close()

    def start(self, run: Callable[[T], R], task: T) -> bool:
        """Start a task. False if the process died while it was idle; another process then gets the task."""
        used: dict[int, Trace] = {}
        parts = io.BytesIO()
        _Sender(parts, used).dump((run, task))
        new = {key: trace for key, trace in used.items() if key not in self._kept}
        self._kept = used
        try:
            self.pipe.send((parts.getvalue(), new, set(used)))
        except OSError:
            self.close()
            return False
        return True

    def take(self) -> tuple[Any, str]:
        """What `attempt` returned in the process, or the reason why the process died."""
        try:
            result, reason = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            return None, f"its process died ({_death(self.process.exitcode)})"
        return result, reason

    def close(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


class _Sender(ForkingPickler):
    """Writes a task without its workloads, and collects these by their identity."""

    def __init__(self, file: io.BytesIO, used: dict[int, Trace]) -> None:
        super().__init__(file)
        self._used = used

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, Trace):
            return None
        self._used[id(value)] = value
        return id(value)


class _Receiver(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, kept: dict[int, Trace]) -> None:
        super().__init__(file)
        self._kept = kept

    def persistent_load(self, key: int) -> Trace:
        return self._kept[key]


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the caller's script from a process that starts, which would run it again from its first line to its last."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _serve(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    kept: dict[int, Trace] = {}
    while True:
        try:
            parts, new, used = pipe.recv()
        except EOFError:
            return
        kept = {key: trace for key, trace in {**kept, **new}.items() if key in used}
        run, task = _Receiver(io.BytesIO(parts), kept).load()
        pipe.send(attempt(run, task))


def _end_with_parent() -> None:
    """End this process with its parent: a parent that was killed cannot do so, and could not take the result."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _death(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    return "signal SIGKILL; out of memory?" if code == -signal.SIGKILL else signal.Signals(-code).name
