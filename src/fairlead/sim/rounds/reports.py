"""When running jobs report their progress, and how far the speeds in their reports are from the true ones."""

from __future__ import annotations

import math

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.random import stream
from fairlead.sim.truth import World

# Multiples of the interval are products; times closer than this, in intervals, are the same instant.
_SAME = 1e-9


class Reports:
    """The instants of reports: all multiples of the interval, so that they depend on no start and no interruption."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._number = 1

    @property
    def next_s(self) -> float:
        return self._number * self._world.report_s

    def skip_to(self, now_s: float) -> None:
        """Pass over the instants before `now_s`, at which no job ran."""
        self._number = max(self._number, math.ceil(now_s / self._world.report_s - _SAME))

    def pop(self) -> None:
        self._number += 1

    def is_due(self, since_s: float) -> bool:
        """Whether a job that reported or began at `since_s` reports at the next instant: it ran for a whole interval."""
        return since_s <= self.next_s - self._world.report_s * (1.0 - _SAME)

    def noise(self, jobs: IntArray) -> FloatArray:
        """j  measured / true speed in the reports of the next instant, with mean 1 and the world's standard deviation.

        A job's draw depends on the instant and on the job only, so it is the same under every policy.
        """
        spread = self._world.sensing_noise
        if not spread or not jobs.size:
            return np.ones(len(jobs))
        sigma = math.sqrt(math.log1p(spread * spread))  # of the logarithm: speeds stay positive
        draws = stream(self._world.seed, f"sensing noise of report {self._number}").standard_normal(int(jobs.max()) + 1)
        return np.asarray(np.exp(sigma * draws[jobs] - sigma * sigma / 2.0))
