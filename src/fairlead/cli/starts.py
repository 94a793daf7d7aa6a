"""Start estimates of the service in words: `in 10-25 min (8 of 10)`."""

from __future__ import annotations

import time
from typing import Any

from fairlead.service.client import Client

_UNITS = ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h"), (float("inf"), 86_400.0, "d"))


def estimated_starts(client: Client) -> dict[str, dict[str, Any]]:
    """By job: `earliest_s`, `latest_s`, `chance`, when it was estimated (`time_s`), and all that as `text`."""
    return starts_of(client.get("/estimates"))


def starts_of(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """`estimated_starts` from the answer of `GET /v1/estimates`."""
    common = {name: answer[name] for name in ("time_s", "until_s", "chance")}
    starts: dict[str, dict[str, Any]] = {}
    for row in answer["estimates"]:
        start = {"earliest_s": row["earliest_s"], "latest_s": row["latest_s"], **common}
        starts[row["job"]] = {**start, "text": start_text(start, time.time())}
    return starts


def start_text(start: dict[str, Any], now_s: float) -> str:
    chance = f"({round(10 * start['chance'])} of 10)"
    if start["earliest_s"] is None:
        return f"not within {_span(start['until_s'] - start['time_s'])}"
    low_s = max(start["earliest_s"] - now_s, 0.0)
    if start["latest_s"] is None:
        return f"in {_span(low_s)} or later {chance}"
    high_s = max(start["latest_s"] - now_s, 0.0)
    if high_s < 60:
        return f"within a minute {chance}"
    _, seconds, unit = next(one for one in _UNITS if high_s < one[0])
    low, high = round(low_s / seconds), max(round(high_s / seconds), 1)
    return f"in {high} {unit} {chance}" if low == high else f"in {low}-{high} {unit} {chance}"


def _span(seconds: float) -> str:
    _, unit_s, unit = next(one for one in _UNITS if seconds < one[0])
    return f"{round(seconds / unit_s)} {unit}"
