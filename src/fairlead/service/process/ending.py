"""How `fairlead serve` ends: in order if it can, and within a bound however little of it still works."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

ENDED_WITHIN_S = 30.0  # after a signal
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _StopRequestedError(BaseException):
    """A signal that arrived before there was a server to end."""


@contextmanager
def ends_in_time(end_server: Callable[[], bool], last_resort: Callable[[], None]) -> Iterator[None]:
    """In this context SIGTERM and Ctrl-C end the server, or the context if there is none yet (`end_server` is False).

    When the context has ended, the signal has its usual effect. If the process has not ended within `ENDED_WITHIN_S`,
    `last_resort` is called in a thread, which works even if the disk blocks every other one, and the process exits.
    """
    signals: list[int] = []

    def asked(number: int, _: FrameType | None) -> None:
        signals.append(number)
        if not end_server():
            raise _StopRequestedError

    before = {number: signal.signal(number, asked) for number in SIGNALS}
    wakes, announces = os.pipe()
    os.set_blocking(announces, False)
    signal.set_wakeup_fd(announces, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(wakes, last_resort), name="ending", daemon=True).start()
    try:
        with suppress(_StopRequestedError):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        os.close(announces)
    if signals:
        signal.raise_signal(signals[0])


def _watch(wakes: int, last_resort: Callable[[], None]) -> None:
    """Wait for the first signal, which the interpreter announces before any of its handlers runs, then for the bound."""
    while (announced := os.read(wakes, 1)) and announced[0] not in SIGNALS:
        pass
    if announced:  # the pipe stays open: uvicorn raises the signal once more when its server has ended
        threading.Event().wait(ENDED_WITHIN_S)
        print(f"fairlead: it did not end within {ENDED_WITHIN_S:g} s and is ended now", file=sys.stderr, flush=True)
        last_resort()
        os._exit(1)
    os.close(wakes)
