"""Time stamps of logs as seconds since 1970 UTC; the user names the zone of time stamps without one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from fairlead.model.errors import InputError

_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str, timezone: str = "UTC") -> float:
    """Seconds since 1970 of an ISO 8601 time, with a blank or a T; an ambiguous time is the earlier one."""
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f'time "{text}" is not understood; wanted, for example, 2017-10-09 07:01:55') from None
    since = stamp - _EPOCH_UTC if stamp.tzinfo is not None else _zoned(timezone)(stamp)
    return since.days * 86400.0 + since.seconds + since.microseconds * 1e-6


def format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@cache
def _zoned(timezone: str) -> Callable[[datetime], timedelta]:
    if timezone.upper() == "UTC":
        return lambda stamp: stamp - _EPOCH
    try:
        zone = ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        raise InputError(f'time zone "{timezone}" is not known; wanted a name such as UTC or Asia/Shanghai') from None
    return lambda stamp: stamp.replace(tzinfo=zone) - _EPOCH_UTC
