"""AlloX: each job on one GPU, by a matching of jobs to places in the GPUs' queues (EuroSys 2020)."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray


def match_jobs(size_s: FloatArray, free_in_s: FloatArray) -> tuple[IntArray, IntArray]:
    """(GPU, place from the end) of each waiting job, so that the sum of completion times is least.

    `size_s` (j,m) is a job's time on a GPU. A job that is l-th from the end of a GPU's queue delays l jobs, itself
    included, by its size, and waits for what runs there now:  cost = l size_s[j,m] + free_in_s[m].
    """
    from fairlead.numerics.matching import match

    jobs, gpus = size_s.shape
    # Queues of fast GPUs are longer than the mean; four times the mean has always been enough and is checked below.
    places = min(jobs, 4 * -(-jobs // gpus) + 4)
    while True:
        behind = np.arange(1, places + 1)
        cost = size_s[:, :, None] * behind + free_in_s[:, None]
        column = match(np.ascontiguousarray(cost.reshape(jobs, gpus * places)))
        gpu, place = np.divmod(column, places)
        if places == jobs or place.max() < places - 1:
            return gpu, place + 1
        places = min(jobs, 2 * places)
