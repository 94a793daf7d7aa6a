"""The state of the scheduler process. Without pydantic, because the supervisor starts before the web server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """What the scheduler process has reported; null where it has not reported yet."""

    ready: bool = False
    restarts: int = 0
    start_s: float | None = None  # duration of its start
    jobs: int | None = None  # that it knew after its start
    decision_s: float | None = None  # from the events to the commit of the last decision
    slowest_decision_s: float | None = None
    fell_back: str | None = None  # why another policy than the one that was set decides
    warm: dict[str, int] | None = None  # processes that wait for leases, as of the last decision
