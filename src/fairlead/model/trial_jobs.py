"""Jobs of new models, whose speeds are measured on every GPU type before a policy schedules them (FFT, ICS 2025)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrialJob:
    """The job of a new model that is measured, or will be. It runs at its reference width, on one type after another."""

    job: int  # permanent position
    row: int | None  # in the view, while it holds GPUs; otherwise None: policies do not see it
    tenant: int
    gpus: int
    types: tuple[int, ...]  # still to be tried, in this order
    until_s: float  # when its present trial is over; now if it has none


@dataclass(frozen=True, slots=True)
class WaitsForTrials:
    """A job that waits until its model was measured, and for which no decision has stated this reason yet."""

    job: int  # permanent position
    gpus: int
    tried: int  # types on which its model was measured for its tenant
    left: int  # types on which it still has to be
