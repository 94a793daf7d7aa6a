"""Keeps a flood of bad requests out of the service's log: repeated messages are counted instead of written."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

EVERY_S = 10.0
_MOST_KINDS = 1000
_Kind = tuple[str, str, int]  # the format of a message, and where its exception was raised
_LOGGERS = ("uvicorn.error", "asyncio", "fairlead.api")


class RepeatedMessages:
    """A filter of log records: of one message, at most one per `every_s`, with the number of those left out before it.

    Messages count as one whatever numbers or names they contain, unless exceptions come from different places.
    """

    def __init__(self, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._clock = every_s, clock
        self._last: dict[_Kind, tuple[float, int]] = {}  # when it was written, and how many were left out since then

    def __call__(self, record: logging.LogRecord) -> bool:
        now_s, kind = self._clock(), _kind_of(record)
        written_s, left_out = self._last.get(kind, (-math.inf, 0))
        if now_s - written_s < self._every_s:
            self._last[kind] = (written_s, left_out + 1)
            return False
        if len(self._last) >= _MOST_KINDS:  # some messages contain the addresses of strangers
            self._last.clear()
        self._last[kind] = (now_s, 0)
        if left_out:
            record.msg = f"{record.msg} (and {left_out} more like this)"
        return True


def _kind_of(record: logging.LogRecord) -> _Kind:
    trace = record.exc_info[2] if record.exc_info else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else trace.tb_frame.f_code.co_filename
    return str(record.msg), place, 0 if trace is None else trace.tb_lineno


def limit_log() -> None:
    """Filter the loggers of the web server, of the event loop and of the API, once."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(present, RepeatedMessages) for present in logger.filters):
            logger.addFilter(RepeatedMessages())
