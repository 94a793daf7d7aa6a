"""What a policy sees: one frozen picture of the active jobs and the cluster, as columns.

Axes: j active jobs in arrival order, t GPU types, n nodes, u tenants. What a policy has not declared to know is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairlead.model.allocation import Spot
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster

# rate_at(position in the view, type, GPUs, nodes) -> samples per second if the job ran like that
RateAt = Callable[[int, int, int, int], float]


@dataclass(frozen=True, slots=True)
class View:
    now_s: float
    round_s: float
    cluster: Cluster
    capacity: IntArray  # t  GPUs on nodes that are up
    node_up: BoolArray  # n
    node_free: IntArray  # n  GPUs that no job holds, 0 where the node is down

    job: IntArray  # j  the job's position for life, ascending
    tenant: IntArray  # j
    tenant_weight: FloatArray  # u
    model: IntArray  # j
    arrival_s: FloatArray  # j
    weight: FloatArray  # j
    width: IntArray  # j  GPUs at the reference width
    width_set: IntArray  # j  index into `width_sets`: every GPU count that the job can run on
    width_sets: tuple[tuple[int, ...], ...]
    relaxed: BoolArray  # j  may mix types
    rate: FloatArray  # j,t  samples/s at the reference width on the fewest nodes; 0 = cannot run there
    rate_at: RateAt
    restart_s: FloatArray  # j  what a move costs
    type_speed: FloatArray  # t  one speed for all jobs: geometric mean over models, the fastest type is 1

    attained_gpu_s: FloatArray  # j  GPU-seconds held so far
    wait_s: FloatArray  # j  time in the system without GPUs
    held_type: IntArray  # j  type now held, -1 = none
    held_gpus: IntArray  # j
    held_since_s: FloatArray  # j
    spots: Mapping[int, Spot]  # j -> where it is now, for jobs that hold GPUs

    total: FloatArray | None  # j  samples asked for; NaN where the owner did not say
    done: FloatArray | None  # j  samples done

    @property
    def jobs(self) -> int:
        return len(self.job)
