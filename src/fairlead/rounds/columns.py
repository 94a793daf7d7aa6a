"""The columns of the folded state: each holds one fact about every job."""

from __future__ import annotations

import math

import numpy as np

from fairlead.model.lifecycle import Phase
from fairlead.model.outcomes import Reason
from fairlead.model.view import NO_TYPE

COLUMNS: dict[str, tuple[type, float]] = {
    # name: (dtype, value of a job that has just arrived)
    "number": (np.int64, 0),  # how many jobs arrived before it; permanent, unlike its position
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
    "exact_nodes": (np.int64, 0),  # 0: any number
    "mixable_row": (np.int64, 0),
    "total": (np.float64, math.nan),  # declared samples
    "restart_s": (np.float64, 0),
    "started_warm": (np.bool_, 0),  # the last start whose cost was measured
    # Progress: `done` samples at `at_s`, then `rate` per second from `resume_s` on.
    "done": (np.float64, 0),
    "safe": (np.float64, 0),  # of these, when it last left its GPUs: what a restart finds in its checkpoints
    "rate": (np.float64, 0),
    "at_s": (np.float64, 0),
    "resume_s": (np.float64, 0),
    # Service: GPU-seconds and seconds held before `since_s`, the start of the current lease.
    "attained_gpu_s": (np.float64, 0),
    "run_s": (np.float64, 0),
    "held_type": (np.int64, NO_TYPE),
    "held_gpus": (np.int64, 0),
    "held_nodes": (np.int64, 0),
    "since_s": (np.float64, math.inf),
    # Where GPUs pass from job to job with every task: mean GPUs held since `at_s`, and the part of the time with GPUs.
    "mean_gpus": (np.float64, 0),
    "part": (np.float64, 0),
    "first_start_s": (np.float64, math.nan),
    "end_s": (np.float64, math.nan),
    "leases": (np.int64, 0),  # the number of its newest lease: how often it got GPUs, unless renumbered
    "restarts": (np.int64, 0),
    "setbacks": (np.int64, 0),  # leases in a row that came to nothing
    "refusals": (np.int64, 0),  # starts in a row that the engine refused
    "migrations": (np.int64, 0),
    "restart_gpu_s": (np.float64, 0),  # GPU-seconds of restoring, and of work that was lost and is done again
    # Why it waits, as of the decision that last changed it; UNDECIDED while it runs.
    "reason": (np.int64, Reason.UNDECIDED),
    "reason_s": (np.float64, math.nan),  # time of that decision
    "reason_free": (np.int64, 0),
    "reason_a": (np.float64, 0),
    "reason_b": (np.float64, 0),
    # Integral of the number of active jobs over time, at arrival and at the end.
    "crowd_in": (np.float64, 0),
    "crowd_out": (np.float64, math.nan),
}
