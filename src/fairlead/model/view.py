"""What a policy sees: a frozen snapshot of the active jobs and the cluster, as columns.

Axes: j active jobs in arrival order, t GPU types, n nodes, u tenants. Information that a policy has not declared is
None. Columns of jobs are gathered when they are first read, so that a policy pays only for what it uses: with thousands
of jobs in the queue, gathering takes most of a round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fairlead.model.allocation import Spot
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.pre_emption import Charge
from fairlead.model.quotas import Quotas
from fairlead.model.trial_jobs import CheckJob, TrialJob, WaitsForTrials

# rate_at(position in the view, type, GPUs, nodes) -> samples per second if the job ran like that
RateAt = Callable[[int, int, int, int], float]
NO_TYPE, MIXED_TYPES = -1, -2  # values of `held_type`

_Values = TypeVar("_Values")


class Column(Generic[_Values]):
    """A column of a view, which calls the view's `gather` when it is first read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, view: View, owner: type) -> _Values:
        values: _Values = view.gather(self._name)
        view.__dict__[self._name] = values  # from now on this takes precedence over the descriptor
        return values


@dataclass(frozen=True, eq=False)
class View:
    now_s: float
    round_s: float
    cluster: Cluster
    capacity: IntArray  # t  usable GPUs on nodes that are up
    node_up: BoolArray  # n
    node_free: IntArray  # n  usable GPUs that no job holds, 0 where the node is down
    type_speed: FloatArray  # t  one speed for all jobs: geometric mean over models, the fastest type is 1
    tenant_weight: FloatArray  # u
    width_sets: Sequence[tuple[int, ...]]
    job: IntArray  # j  the job's permanent number, ascending: names it across rounds, in memories and ties
    position: IntArray  # j  its position in the state, which is valid for this decision only
    spots: Mapping[int, Spot]  # j -> current spot, for jobs that hold GPUs
    rate_at: RateAt
    rate_on: Callable[[int, Spot], float]  # (position in the view, spot) -> samples per second there
    last_spot: Callable[[int], Spot]  # where a job (position in the view) is or last was; valid until the round is over
    gather: Callable[[str], Any]  # name of a column -> its values; valid until the round is over
    quotas: Quotas | None = None  # None = no tenant has a limit
    trial_jobs: tuple[
        TrialJob, ...
    ] = ()  # jobs of new models to be measured, in order of arrival; policies ignore them
    check_jobs: tuple[CheckJob, ...] = ()  # one for each tenant and model, in order of arrival; policies ignore them
    waiting_for_trials: tuple[WaitsForTrials, ...] = ()  # they are not among the rows
    pre_empted: tuple[Charge, ...] = ()  # what pre-emption has cost in the last hour; policies ignore it
    pinned: BoolArray | None = None  # j  jobs that keep what they hold, for policies that grant or place; None = no job

    tenant = Column[IntArray]()  # j
    kind = Column[IntArray]()  # j  jobs with the same tenant, model, width and allowed types have one permanent kind
    alike = Column[IntArray]()  # j  jobs with the same number have equal rates (`rate`), width and weight
    model = Column[IntArray]()  # j
    # j  jobs with the same model and the same number have equal rates everywhere; 0: the table's, nothing was measured
    measured_group = Column[IntArray]()
    arrival_s = Column[FloatArray]()  # j
    # j  among all jobs: tenants count by their weights, jobs inside a tenant by their own
    weight = Column[FloatArray]()
    width = Column[IntArray]()  # j  GPUs at the reference width
    width_set = Column[IntArray]()  # j  index into `width_sets`: every GPU count that the job can run on
    relaxed = Column[BoolArray]()  # j  may mix types
    exact_nodes = Column[IntArray]()  # j  nodes that it needs, with equally many GPUs on each; 0 = any number
    # j,t  samples/s at the reference width if the job gets the type now, 0 = cannot run there: the speed of its spot
    # where it already holds the type, spread or not, and elsewhere on the fewest nodes. For choosing where to run.
    # Where jobs of its tenant and model have reported, all rates are as measured.
    rate = Column[FloatArray]()
    # j,t  the same on the fewest nodes, wherever the job runs. Entitlements are measured by this.
    ideal_rate = Column[FloatArray]()
    mixable = Column[BoolArray]()  # j,t  a GPU of the type may be part of a grant that mixes types
    restart_s = Column[FloatArray]()  # j  cost of a move

    attained_gpu_s = Column[FloatArray]()  # j  GPU-seconds held so far
    wait_s = Column[FloatArray]()  # j  time in the system without GPUs
    held_type = Column[IntArray]()  # j  type now held, NO_TYPE or MIXED_TYPES
    held_gpus = Column[IntArray]()  # j
    held_nodes = Column[IntArray]()  # j  number of nodes
    held_since_s = Column[FloatArray]()  # j
    reason = Column[IntArray]()  # j  why it waited after the last decision, a `Reason`
    restarts = Column[IntArray]()  # j  checkpoints restored so far
    relative = Column[FloatArray | None]()  # j,n  learnt rate there / `rate_at`; None = nothing was learnt
    # j,t  learnt rate over several nodes / (`rate_at` x the slowest node's `relative`); None = nothing was learnt
    relative_spread = Column[FloatArray | None]()

    total = Column[FloatArray | None]()  # j  declared samples; NaN if the owner declared none
    done = Column[FloatArray | None]()  # j  samples done

    @property
    def jobs(self) -> int:
        return len(self.job)
