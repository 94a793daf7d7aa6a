"""What pre-emption may cost in an hour, in all and for the jobs of one tenant.

A running job that a decision stops or moves costs the GPUs that it holds times its restart cost: the GPU time that is
lost until it works again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

WINDOW_S = 3600.0  # limits hold for every hour, whenever it begins

# (time, tenant's position, GPU-seconds): one for each tenant in each decision that cost it something
Charge = tuple[float, int, float]


@dataclass(frozen=True, slots=True)
class PreemptionLimits:
    """GPU-seconds that may be lost in an hour; infinite where there is no limit."""

    gpu_s: float = math.inf  # by all jobs together
    tenant_gpu_s: float = math.inf  # by the jobs of any one tenant

    @property
    def are_set(self) -> bool:
        return min(self.gpu_s, self.tenant_gpu_s) < math.inf


NO_PREEMPTION_LIMITS = PreemptionLimits()
