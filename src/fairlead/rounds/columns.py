"""The columns of the folded state: one fact of every job each."""

from __future__ import annotations

import math

import numpy as np

from fairlead.model.lifecycle import Phase
from fairlead.model.outcomes import Reason
from fairlead.model.view import NO_TYPE

COLUMNS: dict[str, tuple[type, float]] = {
    # name: (dtype, value of a job that has just arrived)
    "phase": (np.int64, Phase.WAITING),
    "tenant": (np.int64, 0),
    "model": (np.int64, 0),
    "kind": (np.int64, 0),
    "alike": (np.int64, 0),
    "arrival_s": (np.float64, 0),
    "width": (np.int64, 0),
    "width_set": (np.int64, 0),
    "weight": (np.float64, 1),
    "relaxed": (np.bool_, 0),
    "mixable_row": (np.int64, 0),
    "total": (np.float64, math.nan),  # samples asked for, as declared
    "restart_s": (np.float64, 0),
    # Progress: `done` samples at `at_s`, then `rate` per second from `resume_s` on.
    "done": (np.float64, 0),
    "rate": (np.float64, 0),
    "at_s": (np.float64, 0),
    "resume_s": (np.float64, 0),
    # Service: GPU-seconds and seconds held up to the start of what is held now, `since_s`.
    "attained_gpu_s": (np.float64, 0),
    "run_s": (np.float64, 0),
    "held_type": (np.int64, NO_TYPE),
    "held_gpus": (np.int64, 0),
    "held_nodes": (np.int64, 0),
    "since_s": (np.float64, math.inf),
    # Where GPUs change hands with every task: what is held on average since `at_s`, and for which part of the time.
    "mean_gpus": (np.float64, 0),
    "part": (np.float64, 0),
    "first_start_s": (np.float64, math.nan),
    "end_s": (np.float64, math.nan),
    "leases": (np.int64, 0),  # how often it was given GPUs
    "restarts": (np.int64, 0),
    "migrations": (np.int64, 0),
    # Why it waits, as of the decision that last changed it; UNDECIDED while it runs.
    "reason": (np.int64, Reason.UNDECIDED),
    "reason_s": (np.float64, math.nan),  # since when
    "reason_free": (np.int64, 0),
    "reason_a": (np.float64, 0),
    "reason_b": (np.float64, 0),
    # Integral of the number of active jobs over time, at arrival and at the end.
    "crowd_in": (np.float64, 0),
    "crowd_out": (np.float64, math.nan),
}
