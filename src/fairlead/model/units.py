"""Parsing and formatting of durations and numbers."""

from __future__ import annotations

import math
import re

from fairlead.model.errors import InputError

_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d|w)")


def parse_duration(text: str | float) -> float:
    """Seconds from a number or from parts such as `90`, `30s`, `1h30m`, `2d`; never negative, never infinite."""
    number = _as_number(text)
    if number is None:
        compact = str(text).strip().lower().replace(" ", "")
        parts = _PART.findall(compact)
        if not parts or "".join(value + unit for value, unit in parts) != compact:
            raise InputError(f'duration "{text}" is not understood; write seconds or parts such as 30s, 5m, 1h30m, 2d')
        number = sum(float(value) * _SECONDS[unit] for value, unit in parts)
    if not math.isfinite(number) or number < 0:
        raise InputError(f'duration "{text}" must be a finite number that is not negative')
    return number


def format_duration(seconds: float | None) -> str:
    """The two largest units, abbreviated: `3h 52m`, `45s`; a dash if there is no value."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 60:
        return f"{seconds:.3g}s"
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02d}h"
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest_s:02d}s"


def format_number(value: float | None, digits: int = 3) -> str:
    """The number with `digits` significant digits, or whole with separators: `0.0123`, `45,678`; a dash for None."""
    return "-" if value is None else f"{value:,.{digits}g}" if abs(value) < 1000 else f"{value:,.0f}"


def _as_number(text: str | float) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
