"""The ground truth of a simulated world: the true behaviour of jobs, which policies do not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster, NodeGroup, with_node, without_node
from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.numerics.random import stream
from fairlead.rates.estimator import Estimator, allowed_rates, mixable_types, runs_somewhere
from fairlead.rates.spot import GangRate, spot_rate
from fairlead.rates.three_layer import Learns
from fairlead.sim.declared import with_declared_models


@dataclass(frozen=True, slots=True)
class World:
    """Parameters of the simulated world; everything hidden is off by default and drawn from the seed."""

    seed: int = 0
    server_factor: tuple[float, float] = (1.0, 1.0)  # each node's hidden speed, uniform between these
    job_server_factor: tuple[float, float] = (1.0, 1.0)  # each job's own on each node, a further factor, uniform
    mtbf_s: float = 0.0  # mean time between failures of one node; 0: never
    repair_s: float = 3600.0  # mean time to repair
    checkpoint_s: float = 1800.0  # a job saves its state this often; after a failure it resumes from the last save
    length_error: float = 0.0  # declared length = true length x uniform(1 - e, 1 + e)
    # (tenant, factor): its declared speeds are that many times the true ones on every type but the slowest
    declared_speeds: tuple[tuple[str, float], ...] = ()
    profiling_s: float = 0.0  # time to measure a new model on one type before it is scheduled; 0: its speeds are known
    report_s: float = 120.0  # where speeds are learnt, running jobs report theirs this often
    sensing_noise: float = 0.0  # relative standard deviation of the speed in a report
    start_s: float = (
        0.0  # from the decision to start a new job until it works; that of other jobs is their restart cost
    )
    notice_s: float = 0.0  # until the scheduler knows that a job has arrived, or has ended and left its GPUs

    def __post_init__(self) -> None:
        for name, (low, high) in (
            ("server factors", self.server_factor),
            ("job-server factors", self.job_server_factor),
        ):
            if not 0 < low <= high <= 10:
                raise InputError(f"{name} {low}..{high}: wanted 0 < low <= high <= 10")
        if not 0 <= self.length_error < 1:
            raise InputError(f"length error {self.length_error}: wanted from 0 to below 1, such as 0.3")
        for tenant, factor in self.declared_speeds:
            if not 0.01 <= factor <= 100:
                raise InputError(f"declared speeds of {tenant} times {factor}: wanted a factor from 0.01 to 100")
        if not 0 <= self.profiling_s <= 86400:
            raise InputError(f"profiling takes {self.profiling_s} s on a type: wanted from 0 to a day")
        if not 0 <= self.sensing_noise <= 1:
            raise InputError(f"sensing noise {self.sensing_noise}: wanted from 0 to 1, such as 0.05")
        for what, time_s in (("a first start takes", self.start_s), ("news take", self.notice_s)):
            if not 0 <= time_s <= 86400:
                raise InputError(f"{what} {time_s} s: wanted from 0 to a day")
        if not 1 <= self.report_s <= 86400:
            raise InputError(f"reports every {self.report_s} s: wanted from a second to a day")
        if self.checkpoint_s <= 0 or self.repair_s <= 0:
            raise InputError("the checkpoint interval and the repair time must be above 0")

    @property
    def hides_speeds(self) -> bool:
        """Whether jobs run at other speeds than those in the table."""
        return self.server_factor != (1.0, 1.0) or self.job_server_factor != (1.0, 1.0)


class Truth:
    """True lengths, rates and node speeds for one run.

    With `learnt`, what an estimator has learnt about jobs and nodes is the truth, and hidden speeds have no effect.
    """

    def __init__(
        self,
        jobs: Sequence[JobSpec],
        cluster: Cluster,
        rates: Estimator,
        world: World,
        learnt: Learns | None = None,
    ) -> None:
        self.jobs = jobs
        self.cluster = cluster
        self.usable = cluster.node_gpus.copy()  # n  GPUs that other users do not hold
        self.world = world
        self.rates = rates
        self.learnt = learnt
        self._gang: dict[str, GangRate] = {}  # by model
        self._on_one_node: dict[tuple[str, int, int], float] = {}  # (model, type, GPUs) -> at the speed of the table
        self.factor = _factors(world, len(cluster.nodes))  # n
        self._own_factor: dict[int, FloatArray] = {}  # job -> n  with its own effect on each node
        self.total = [_samples(spec, rates) for spec in jobs]  # j  samples
        self.restart_s = [rates.restart_s(spec.model) for spec in jobs]  # j

    def rate(self, j: int, spot: Spot) -> float:
        """Samples per second of the whole job."""
        model = self.jobs[j].model
        if self.learnt is not None:
            return self.learnt.predict(j, model, spot)
        if len(spot) == 1:  # the usual case, looked up at once
            ((node, gpus),) = spot
            kind = model, self.cluster.type_of[node], gpus
            rate = self._on_one_node.get(kind)
            if rate is None:
                rate = self._on_one_node[kind] = self.rates.at(*kind, 1)
            return rate * float(self._factor_for(j)[node])
        gang = self._gang.get(model)
        if gang is None:
            gang = self._gang[model] = partial(self.rates.at, model)
        return spot_rate(gang, spot, self.cluster.type_of, self._factor_for(j))

    def _factor_for(self, j: int) -> Sequence[float] | FloatArray:
        """n  The hidden speed of each node for this job. A job's draws for nodes that join follow those it has."""
        low, high = self.world.job_server_factor
        if low == high == 1.0:
            return self.factor
        factor = self._own_factor.get(j)
        if factor is None:
            draws = stream(self.world.seed, f"job-server factors of {self.jobs[j].id}")
            factor = self._own_factor[j] = np.array(self.factor) * draws.uniform(low, high, len(self.factor))
        return factor

    def add_node(self, name: str, group: NodeGroup) -> None:
        self._change_to(with_node(self.cluster, name, group))
        self.usable = np.pad(self.usable, (0, len(self.cluster.nodes) - len(self.usable)))
        self.usable[self.cluster.nodes.index(name)] = group.gpus
        for new in self.cluster.nodes[len(self.factor) :]:
            low, high = self.world.server_factor
            hidden = (
                low if low == high else float(stream(self.world.seed, f"server factor of {new}").uniform(low, high))
            )
            self.factor.append(hidden)
        self._own_factor = {}

    def remove_node(self, node: int) -> None:
        self._change_to(without_node(self.cluster, node))
        self.usable[node] = 0

    def _change_to(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rates = self.rates.for_cluster(cluster)
        self._gang, self._on_one_node = {}, {}

    def runs_nowhere(self, j: int) -> bool:
        """Whether the present cluster has too few GPUs for the job, even with all nodes up and no other job."""
        spec, cluster = self.jobs[j], self.cluster
        usable = np.bincount(cluster.node_type, self.usable, len(cluster.types))  # t
        rates = np.where(usable >= spec.gpus, allowed_rates(spec, cluster, self.rates), 0.0)
        mixable = mixable_types(spec, cluster, self.rates)
        return not runs_somewhere(rates, mixable & (mixable @ usable >= spec.gpus))

    def declared(self) -> list[JobSpec]:
        """The jobs as their owners describe them, with the errors in their lengths and speeds."""
        jobs, error = with_declared_models(self.jobs, dict(self.world.declared_speeds)), self.world.length_error
        if not error:
            return jobs
        factors = stream(self.world.seed, "length error").uniform(1 - error, 1 + error, len(jobs)).tolist()
        return [
            spec if spec.steps is None else replace(spec, steps=spec.steps * factor)
            for spec, factor in zip(jobs, factors, strict=True)
        ]


def _factors(world: World, nodes: int) -> list[float]:
    low, high = world.server_factor
    if low == high:
        return [low] * nodes
    factors: list[float] = stream(world.seed, "server factors").uniform(low, high, nodes).tolist()
    return factors


def _samples(spec: JobSpec, rates: Estimator) -> float:
    if spec.steps is None:
        raise InputError(f"job {spec.id} has no steps; a simulation needs the true length of every job")
    return spec.steps * rates.samples_per_step(spec.model, spec.gpus)
