"""Jobs that run on a GPU type to be measured there: those of new models (FFT, ICS 2025), and checks of declared speeds."""

from __future__ import annotations

from dataclasses import dataclass

CHECK_SHARE = 0.05  # part of the GPU time of a tenant and model that checks of its declared speeds may take


@dataclass(frozen=True, slots=True)
class TrialJob:
    """The job of a new model that is measured, or will be. It runs at its reference width, on one type after another."""

    job: int  # position in the state
    row: int | None  # in the view, while it holds GPUs; otherwise None: policies do not see it
    tenant: int
    gpus: int
    types: tuple[int, ...]  # still to be tried, in this order
    until_s: float  # when its present trial is over; now if it has none


@dataclass(frozen=True, slots=True)
class CheckJob:
    """A running job that may be moved to a GPU type whose speed was declared for its tenant and model, and never measured."""

    row: int  # in the view
    types: tuple[int, ...]  # to be checked, one at a time, in this order
    due_s: float  # from when on


@dataclass(frozen=True, slots=True)
class WaitsForTrials:
    """A job that waits until its model was measured, and for which no decision has stated this reason yet."""

    job: int  # position in the state
    gpus: int
    tried: int  # types on which its model was measured for its tenant
    left: int  # types on which it still has to be
