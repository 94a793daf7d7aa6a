"""How the scheduler process is, as the API shows it. Without pydantic: the supervisor starts before the web server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """What the scheduler process reported; null: nothing yet."""

    ready: bool = False
    restarts: int = 0
    start_s: float | None = None  # how long its start took
    jobs: int | None = None  # that it knew when it had started
    decision_s: float | None = None  # from the news to the commit of the last decision
    slowest_decision_s: float | None = None
    fell_back: str | None = None  # why another policy decides than the one that was set
