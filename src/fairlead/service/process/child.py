"""A forked child that answers questions until a deadline, and that can be killed whatever it does.

The child has the memory of this process, copied when it writes to it, and nothing else: no open file but its end of a
socket and standard error, no lock, no way to write to the store. It ends with this process, however that ends. Frames
are a byte for their kind, eight for their length, and their body.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from fairlead.model.errors import FairleadError
from fairlead.service.live_policies import POLICY_MEMORY_GIB, limit_memory

_T = TypeVar("_T")
MOST_BYTES = 1 << 28  # of a frame: a decision about a million jobs has 80 MB
_REAP_S = 1.0  # how long the exit code of a child that has hung up is waited for
_SET_PARENT_DEATH_SIGNAL = 1  # of prctl


class ChildFailedError(FairleadError):
    """The child did not answer in time, died, or sent something that is no frame."""


class ServiceEndedError(FairleadError):
    """The service ended while a child was asked."""


@dataclass(frozen=True, slots=True)
class ChildLimits:
    deadline_s: float = 30.0  # of one question, from its first byte to the last one of the answer
    memory_gib: float = POLICY_MEMORY_GIB  # of address space, in addition to what this process has when it forks


class Pipe:
    """One end of the socket, with deadlines. `ends` is a descriptor whose hang-up ends all waiting."""

    def __init__(self, end: socket.socket, ends: int | None = None) -> None:
        end.setblocking(False)
        self._end, self._ends = end, ends
        self._poll = select.poll()
        if ends is not None:
            self._poll.register(ends, 0)  # only hang-ups, which cannot be left out

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, kind: bytes, body: bytes, until_s: float) -> None:
        left = memoryview(kind + len(body).to_bytes(8, "little") + body)
        while left:
            with suppress(BlockingIOError):
                left = left[self._end.send(left) :]
                continue
            self._wait(select.POLLOUT, until_s)

    def receive(self, until_s: float) -> tuple[bytes, bytes]:
        """(kind, body) of the next frame. ConnectionError: the other end has hung up."""
        head = self._read(9, until_s)
        size = int.from_bytes(head[1:], "little")
        if size > MOST_BYTES:
            raise ChildFailedError(f"it sent a message of {size} bytes; at most {MOST_BYTES} are accepted")
        return head[:1], self._read(size, until_s)

    def close(self) -> None:
        self._end.close()

    def _read(self, size: int, until_s: float) -> bytes:
        parts, left = [], size
        while left:
            try:
                part = self._end.recv(min(left, 1 << 20))
            except BlockingIOError:
                self._wait(select.POLLIN, until_s)
                continue
            if not part:
                raise ConnectionError
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _wait(self, event: int, until_s: float) -> None:
        self._poll.register(self._end.fileno(), event)
        left_s = until_s - time.monotonic()
        ready = self._poll.poll(None if left_s == math.inf else left_s * 1000) if left_s > 0 else []
        if self._ends is not None and any(descriptor == self._ends for descriptor, _ in ready):
            raise ServiceEndedError("the service has ended")
        if not ready:
            raise TimeoutError


class Child:
    """A child that runs `work(pipe)` until it returns, is closed or this process ends. `ends` is as in `Pipe`."""

    def __init__(self, work: Callable[[Pipe], None], limits: ChildLimits, ends: int | None = None) -> None:
        self._limits = limits
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            _live(work, theirs, limits)
        theirs.close()
        self._pipe = Pipe(ours, ends)
        self._alive = True  # as far as we know: its number may be that of another process once it is False

    def tell(self, kind: bytes, body: bytes) -> None:
        """Send a frame that has no answer."""
        self._exchange(lambda until_s: self._pipe.send(kind, body, until_s))

    def ask(self, kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        """Send a frame and return the next one from the child."""

        def exchange(until_s: float) -> tuple[bytes, bytes]:
            self._pipe.send(kind, body, until_s)
            return self._pipe.receive(until_s)

        return self._exchange(exchange)

    def close(self) -> None:
        """Kill the child and its process group."""
        self._pipe.close()
        if self._alive:
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    kill(self.pid, signal.SIGKILL)
            self._alive = _exit_status(self.pid) is None

    def _exchange(self, do: Callable[[float], _T]) -> _T:
        """The result of `do(until_s)`. After a failure the child is gone."""
        try:
            return do(time.monotonic() + self._limits.deadline_s)
        except TimeoutError:
            problem = f"it did not answer within {self._limits.deadline_s:g} s"
        except ConnectionError:
            problem = self._last_words()
        except BaseException:
            self.close()
            raise
        self.close()
        raise ChildFailedError(problem)

    def _last_words(self) -> str:
        """How a child that has hung up ended."""
        status = _exit_status(self.pid)
        self._alive = status is None
        if status is None:
            return "it closed its connection"
        if os.WIFSIGNALED(status):
            return f"it was killed by signal {signal.Signals(os.WTERMSIG(status)).name}"
        return f"it exited with code {os.waitstatus_to_exitcode(status)}"


def _live(work: Callable[[Pipe], None], end: socket.socket, limits: ChildLimits) -> NoReturn:
    """The child's life. Nothing of this process is cleaned up at its end: all of it belongs to the parent."""
    code = 1
    try:
        parent = os.getppid()
        os.setsid()  # a group that can be killed, and that Ctrl-C does not reach
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(code)
        _let_go(end.fileno())
        limit_memory(limits.memory_gib)
        gc.freeze()  # otherwise a collection would touch, and so copy, all of the parent's objects
        work(Pipe(end))
        code = 0
    finally:
        os._exit(code)


def _let_go(keep: int) -> None:
    """Close every descriptor but `keep` and standard error, to which standard output is sent as well."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.closerange(3, keep)
    os.closerange(keep + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115  for as long as the process lives
    sys.stdout = sys.stderr = open(2, "w", closefd=False, encoding="utf-8", buffering=1)  # noqa: SIM115


def _exit_status(pid: int) -> int | None:
    """The status of `waitpid`; None if the child has not ended soon, or is not ours."""
    give_up_s = time.monotonic() + _REAP_S
    while time.monotonic() < give_up_s:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if ended:
            return status
        time.sleep(0.001)
    return None
