"""Parsing and formatting of durations, sizes and numbers."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from fairlead.model.errors import InputError

HOUR_S = 3600.0
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BYTES = {"": 1, "b": 1} | {
    f"{letter}{binary}b": (1024 if binary else 1000) ** power
    for power, letter in enumerate("kmgt", start=1)
    for binary in ("", "i")
}
_GPU_TIME = re.compile(r"(\d{1,12}(?:\.\d{1,12})?|\.\d{1,12}) *gpu-(s|min|h)(?:/h)?")
_SIZE = re.compile(rf"(\d{{1,18}}(?:\.\d{{1,18}})?) *({'|'.join(sorted(_BYTES, key=len, reverse=True))})")
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d|w)")


def parse_duration(text: str | float, what: str = "duration") -> float:
    """Seconds from a number or from parts such as `90`, `30s`, `1h30m`, `2d`; never negative, never infinite.

    `what` is its name in messages, such as the option.
    """
    number = _as_number(text)
    if number is None:
        compact = str(text).strip().lower().replace(" ", "")
        parts = _PART.findall(compact)
        if not parts or "".join(value + unit for value, unit in parts) != compact:
            raise InputError(f'{what} "{text}" is not understood; write seconds or parts such as 30s, 5m, 1h30m, 2d')
        number = sum(float(value) * _SECONDS[unit] for value, unit in parts)
    if not math.isfinite(number) or number < 0:
        raise InputError(f'{what} "{text}" must be a finite number that is not negative')
    return number


def positive_duration(option: str, text: str | float) -> float:
    """Seconds of an option that cannot be zero."""
    seconds = parse_duration(text, option)
    if seconds < 1e-3:
        raise InputError(f'{option} "{text}" must be at least a millisecond')
    return seconds


def parse_memory(text: str | float) -> float:
    """GiB from a number or from a size such as `8GiB`, `512MiB`, `1.5TiB`; above 0, never infinite."""
    number = _as_number(text)
    if number is None:
        size = _bytes(str(text))
        number = math.nan if size is None else size / _BYTES["gib"]
    if not (math.isfinite(number) and number > 0):
        raise InputError(f'memory "{text}" is not understood; write GiB or a size such as 8GiB, 512MiB')
    return number


def parse_gpu_time(text: str, what: str) -> float:
    """GPU-seconds in an hour from a text such as `2gpu-h/h`, `30gpu-min/h` or `900gpu-s/h`; above 0."""
    match = _GPU_TIME.fullmatch(text.strip().lower())
    number = 0.0 if match is None else float(match[1]) * _SECONDS[match[2].removesuffix("in")]
    if not number:
        raise InputError(
            f'{what} "{text}" is not understood; write GPU time above 0 that may be lost in an hour, '
            "such as 2gpu-h/h, 30gpu-min/h or 900gpu-s/h"
        )
    return number


def format_gpu_time(gpu_s: float) -> str:
    """GPU time in hours, `2 GPU-h`, or in seconds if it is short."""
    return f"{gpu_s / HOUR_S:.3g} GPU-h" if gpu_s >= 0.1 * HOUR_S else f"{gpu_s:.3g} GPU-s"


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
    if value is None:
        return "-"
    if not abs(value) < 1000:
        return f"{value:,.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):,f}"  # never with an exponent, such as 8.7e-05 or 1e+03


def parse_whole(text: str, what: str) -> int:
    """A whole number that is not negative; `what` is its name in messages."""
    if not text.strip().isdecimal():
        raise InputError(f'{what} "{text}" is not a whole number')
    return int(text)


def parse_bytes(text: str, what: str) -> int:
    """Bytes from a number, perhaps with a unit: `500000`, `100MiB`, `2 TiB`, `1.5GB`."""
    size = _bytes(text)
    if size is None:
        raise InputError(f'{what} "{text}" is not understood; write bytes, or a size such as 100MiB or 2TiB')
    return size


def _bytes(text: str) -> int | None:
    match = _SIZE.fullmatch(text.strip().lower())
    return None if match is None else int(float(match[1]) * _BYTES[match[2]])


def format_bytes(size: int | None) -> str:
    """The size in its largest binary unit: `1 GiB`, `1.5 KiB`, `12 bytes`; a dash for None."""
    if size is None:
        return "-"
    for unit in ("tib", "gib", "mib", "kib"):
        if size >= _BYTES[unit]:
            return f"{size / _BYTES[unit]:.4g} {unit[0].upper()}iB"
    return f"{size} bytes"


def _as_number(text: str | float) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
