"""Runs in parallel processes of this machine. A run that fails, or takes its process down, fails alone."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from fairlead.studies.compare.cases import Case, run_case

# What comes of a case: its record, or why there is none.
Outcome = tuple[Case, dict[str, Any] | None, str]


def run_here(cases: Iterable[Case], workers: int) -> Iterator[Outcome]:
    """As they are done, in any order. Leaving early stops the processes."""
    todo = deque(cases)
    idle: list[_Worker] = []
    busy: dict[Any, _Worker] = {}  # by its pipe
    try:
        while todo or busy:
            while todo and len(busy) < max(workers, 1):
                worker = idle.pop() if idle else _Worker()
                if worker.give(todo[0]):
                    todo.popleft()
                    busy[worker.pipe] = worker
            for pipe in wait(list(busy)):
                worker = busy.pop(pipe)
                outcome, alive = worker.take()
                if alive:
                    idle.append(worker)
                yield outcome
    finally:
        for worker in (*busy.values(), *idle):
            worker.close()


def try_case(case: Case) -> tuple[dict[str, Any] | None, str]:
    """The record, or the reason in one line."""
    try:
        return run_case(case), ""
    except Exception as error:  # whatever a policy does wrong is a line of the table, not the end of the others
        return None, reason_of(error)


def reason_of(error: BaseException) -> str:
    """What went wrong and where, short enough for a table."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.rpartition('/')[2]} line {frames[-1].lineno})" if frames else ""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said[:300]}{where}" if said else f"{type(error).__name__}{where}"


class _Worker:
    """A process and our end of the pipe to it; started fresh, so that it shares no solver and no thread with us."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self._case: Case | None = None

    def give(self, case: Case) -> bool:
        """False where the process has died meanwhile, with nothing to do: then another one takes the case."""
        self._case = case
        try:
            self.pipe.send(case)
        except OSError:
            self.close()
            return False
        return True

    def take(self) -> tuple[Outcome, bool]:
        """The outcome of the case, and whether the process lives."""
        assert self._case is not None
        try:
            record, reason = self.pipe.recv()
            return (self._case, record, reason), True
        except (EOFError, ConnectionResetError):
            self.process.join()
            return (self._case, None, f"its process died ({_death(self.process.exitcode)})"), False

    def close(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def _serve(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        pipe.send(try_case(case))


def _end_with_parent() -> None:
    """A parent that was killed cannot end us; nobody would take what we find."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return (
            f"signal {signal.Signals(-code).name}; out of memory?"
            if code == -signal.SIGKILL
            else signal.Signals(-code).name
        )
    return f"exit code {code}"
