"""The expected run time of a job, its waiting time relative to that, and the cost of a restart."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.view import View
from fairlead.numerics.metrics import expected_run_s

UNKNOWN_AGE_S = 3600.0  # for jobs without a declared length, if no length is known at all
LEAST_RESTART_FACTOR = 0.5


def latency_ratio(view: View) -> FloatArray:
    """j  LR = wait / age,   age = sum_t (N_t / N) total / (thr_t R_avg)

    thr is the rate per GPU on type t, R_avg the mean of the allowed widths; types that the job cannot use do not count.
    """
    return np.asarray(view.wait_s / expected_age_s(view))


def expected_age_s(view: View) -> FloatArray:
    """j  expected run time without waiting."""
    assert view.total is not None, "the policy declares that it knows lengths"
    average = np.array([sum(widths) / len(widths) for widths in view.width_sets])[view.width_set]  # j  R_avg
    age_s = expected_run_s(view.total, view.ideal_rate * (average / view.width)[:, None], view.cluster.capacity)
    known = np.isfinite(age_s) & (age_s > 0)
    usual_s = float(np.median(age_s[known])) if known.any() else UNKNOWN_AGE_S
    return np.where(known, age_s, usual_s)


def restart_factor(view: View) -> FloatArray:
    """j  (T - n S) / (T + S) for running jobs, 1 for the others, which have to start anyway."""
    ran_s = np.maximum(view.now_s - view.arrival_s - view.wait_s, 0.0)
    factor = (ran_s - view.restarts * view.restart_s) / np.maximum(ran_s + view.restart_s, 1e-9)
    return np.where(view.held_gpus > 0, np.maximum(factor, LEAST_RESTART_FACTOR), 1.0)
