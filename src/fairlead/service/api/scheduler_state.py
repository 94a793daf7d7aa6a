"""The state of the scheduler process. Without pydantic, because the supervisor starts before the web server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """What the scheduler process has reported; null where it has not reported yet. The API adds how intake is."""

    ready: bool = False
    restarts: int = 0
    start_s: float | None = None  # duration of its start
    decision_s: float | None = None  # from the events to the commit of the last decision
    slowest_decision_s: float | None = None
    decision_age_s: float | None = None  # since the last decision of the process that runs now
    decision_overdue: bool = False  # a round should have been decided by now
    policy_failed: bool = False  # another policy than the one that was set decides
    watching: tuple[str, ...] | None = None  # what a service that only watches says about what it sees
    engine_trouble: str | None = None  # why Slurm or Ray cannot be reached now
    intake: str | None = None  # why the jobs of a steered partition cannot be taken over now
    intake_overdue: bool = False  # none could be taken over for a minute
    warm: dict[str, int] | None = None  # processes that wait for leases, as of the last decision
