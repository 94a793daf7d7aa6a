"""Converts the reports of workers to the samples that the state counts."""

from __future__ import annotations

import numpy as np

from fairlead.engines.fleet import Live
from fairlead.engines.leases import Report, Sight
from fairlead.model.handshake import CHECKPOINTED
from fairlead.rounds.state import State

FIRST_S = 1.0  # until the first measurement of a lease


def samples_of(state: State, j: int, step: float | None, samples: float | None) -> float | None:
    """Samples from steps or samples; steps count if both are reported, because lengths are declared in steps."""
    if step is None:
        return samples
    spec = state.specs[j]
    return step * state.estimator.samples_per_step(spec.model, spec.gpus)


def believed(state: State, j: int, now_s: float) -> float:
    """Samples done, if the job ran at its estimated rate."""
    return float(state.done_at(np.array([j]), now_s)[0])


def kept(state: State, live: Live, sight: Sight, now_s: float) -> float:
    """Samples that are safe in checkpoints, as far as is known."""
    report = sight.report
    saved = None if report is None else samples_of(state, live.job, report.saved_step, report.saved_samples)
    if saved is not None:
        return saved
    return believed(state, live.job, now_s) if sight.code == CHECKPOINTED else live.base


def measure(state: State, live: Live, report: Report, every_s: float) -> tuple[float, float] | None:
    """Samples and samples per second, once enough time is between two reports: a second, later `every_s`."""
    done = samples_of(state, live.job, report.step, report.samples)
    if done is None:
        return None
    if live.last is None:
        live.last = report
    before = samples_of(state, live.job, live.last.step, live.last.samples)
    seconds = report.at_s - live.last.at_s
    if before is None or seconds <= 0 or seconds < (every_s if live.measured else min(FIRST_S, every_s)):
        return None
    live.last, live.measured = report, True
    return done, max(done - before, 0.0) / seconds


def has_progressed(state: State, live: Live, report: Report) -> bool:
    """Whether the lease has done more than to restore its checkpoint."""
    done = samples_of(state, live.job, report.step, report.samples)
    if done is None:
        return False
    if live.first_done is None:
        live.first_done = done
    return done > live.base or done != live.first_done
