"""One simulated future of a changed cluster: another month like the one of the trace, or the next days of a live cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.lifecycle import Phase
from fairlead.numerics.random import stream
from fairlead.rates.estimator import Estimator, allowed_rates
from fairlead.rounds.state import State
from fairlead.studies.planning.fleets import FleetPlan, changed_cluster, nodes_of
from fairlead.studies.planning.worth import WorthMeter
from fairlead.studies.runs.origin import Origin
from fairlead.studies.runs.simulate import Setup, impossible, simulate
from fairlead.studies.what_if.changes import AddNodes, Hypothetical, ScaleArrivals, TakeNode, apply_changes
from fairlead.studies.what_if.forward import forward
from fairlead.traces.formats import Trace

DAY_S = 86_400.0
FEWEST_BLOCKS = 8  # a shorter trace is cut into this many blocks


@dataclass(frozen=True, slots=True)
class FleetFigures:
    """The figures of one simulated future. All fleets of a seed get the same jobs."""

    jct_s: float  # mean; a job that has not ended counts with its time until the end
    wait_s: float
    utilisation: float  # while jobs arrive
    worst_tenant: str
    worst_slowdown: float
    jobs: int
    unfinished: int
    stranded: int = 0  # jobs that can never run on this cluster; the other figures are then infinite
    worth: Mapping[str, float] = field(default_factory=dict)  # of one more GPU, by type; of the cluster as it is


@dataclass(frozen=True)
class FutureTask:
    """A fleet in the future of one seed. Exactly one of `setup`, with the jobs of the seed, and `origin` is set."""

    fleet: FleetPlan
    seed: int
    reference: Cluster  # the cluster with all that the budget could buy: its speeds are those that jobs could have
    setup: Setup | None = None
    origin: Origin | None = None
    horizon_s: float = 0.0  # of `origin`
    growth: float = 1.0  # of `origin`: jobs arrive this many times as often as recently


def run_future(task: FutureTask) -> FleetFigures:
    """Simulate a task. It is sent to other processes, so it is a function of this module."""
    if task.setup is not None:
        return _from_trace(task, task.setup)
    assert task.origin is not None, "a task has a set-up or an origin"
    return _from_origin(task, task.origin)


def resampled(trace: Trace, seed: int, growth: float = 1.0) -> Trace:
    """Another time like the trace: blocks of a day, drawn with replacement, so bursts and the hours of a day stay whole.

    A trace of less than eight days is cut into eight blocks. `growth` divides the times between arrivals.
    """
    jobs = trace.jobs
    first_s, span_s = jobs[0].arrival_s, max(jobs[-1].arrival_s - jobs[0].arrival_s, 1e-9)
    block_s = min(DAY_S, span_s / FEWEST_BLOCKS)
    blocks = math.ceil(span_s / block_s * (1 - 1e-12))
    members: list[list[int]] = [[] for _ in range(blocks)]
    for place, spec in enumerate(jobs):
        members[min(int((spec.arrival_s - first_s) / block_s), blocks - 1)].append(place)
    drawn = stream(seed, "blocks of the trace").integers(blocks, size=blocks).tolist()
    again = [
        replace(
            jobs[place],
            id=f"{jobs[place].id}~{number}",
            arrival_s=(jobs[place].arrival_s - first_s + (number - block) * block_s) / growth,
        )
        for number, block in enumerate(drawn)
        for place in members[block]
    ]
    return replace(trace, jobs=tuple(sorted(again, key=lambda spec: spec.arrival_s)))


def _from_trace(task: FutureTask, setup: Setup) -> FleetFigures:
    changed = replace(setup, cluster=changed_cluster(setup.cluster, task.fleet))
    stranded = impossible(changed)
    if stranded:
        return _stranded(len(stranded))
    first_s, last_s = setup.trace.jobs[0].arrival_s, setup.trace.jobs[-1].arrival_s
    rates = replace(setup, cluster=task.reference).estimator()
    meter = _meter(task, rates, first_s, last_s)
    busy = [(0.0, 0.0)]

    def tick(state: State) -> None:
        if state.now_s <= last_s:
            busy[0] = state.busy_gpu_s, state.up_gpu_s
        if meter is not None:
            meter(state)

    state = simulate(changed, tick=tick).state
    jobs = np.arange(state.jobs)
    ended = state.phase[jobs] == Phase.FINISHED
    jct_s = np.where(ended, state.end_s[jobs], state.now_s) - state.arrival_s[jobs]
    wait_s = np.maximum(jct_s - state.ran_at(jobs, state.now_s), 0.0)
    alone_s = _alone_s(task.reference, rates, state, jobs, state.done_at(jobs, state.now_s))
    (busy_gpu_s, up_gpu_s) = busy[0]
    utilisation = busy_gpu_s / up_gpu_s if up_gpu_s > 0 else 0.0
    return _figures(state, jobs, jct_s, jct_s, wait_s, alone_s, utilisation, ended, meter)


def _from_origin(task: FutureTask, origin: Origin) -> FleetFigures:
    cluster = origin.state.cluster
    changes: tuple[Hypothetical, ...] = (
        *(TakeNode(cluster.nodes[node]) for type_ in task.fleet.retired for node in nodes_of(cluster, type_)),
        *(AddNodes(replace(offer.group, count=count)) for offer, count in task.fleet.bought),
    )
    after = apply_changes(origin, changes).origin.state
    stranded = int((~after.best_rate[after.active_jobs].any(axis=1)).sum())
    stranded -= int((~origin.state.best_rate[origin.state.active_jobs].any(axis=1)).sum())
    if stranded > 0:
        return _stranded(stranded)
    now_s, until_s = origin.state.now_s, origin.state.now_s + task.horizon_s
    rates = origin.state.estimator.for_cluster(task.reference)
    meter = _meter(task, rates, now_s, until_s)
    future = forward(
        origin, (*changes, ScaleArrivals(task.growth)), horizon_s=task.horizon_s, seed=task.seed, tick=meter
    )
    before, state = future.before, future.result.state
    jobs = np.array([state.position[id_] for id_ in future.jobs], dtype=np.int64)
    rows = list(future.jobs.values())
    ended = np.array([row.end_s is not None for row in rows])
    end_s = np.array([until_s if row.end_s is None else row.end_s for row in rows])
    arrival_s = state.arrival_s[jobs]
    done = state.done_at(jobs, state.now_s)
    known = jobs < before.jobs
    done[known] -= before.done_at(jobs[known], before.now_s)
    idle_s = max(until_s - state.now_s, 0.0)  # all jobs had ended
    up_gpu_s = state.up_gpu_s - before.up_gpu_s + state.nodes.up_gpus * idle_s
    utilisation = (state.busy_gpu_s - before.busy_gpu_s) / up_gpu_s if up_gpu_s > 0 else 0.0
    wait_s = np.array([row.waiting_s for row in rows])
    alone_s = _alone_s(task.reference, rates, state, jobs, done)
    took_s = end_s - np.maximum(arrival_s, now_s)
    return _figures(state, jobs, end_s - arrival_s, took_s, wait_s, alone_s, utilisation, ended, meter)


def _meter(task: FutureTask, estimator: Estimator, from_s: float, until_s: float) -> WorthMeter | None:
    """Only the cluster as it is has prices, because these say what to change about it."""
    return None if task.fleet != FleetPlan() else WorthMeter(task.reference, estimator, from_s, until_s)


def _alone_s(reference: Cluster, rates: Estimator, state: State, jobs: IntArray, samples: FloatArray) -> FloatArray:
    """j  seconds of this work on the fastest GPUs that are there or on offer."""
    best: dict[tuple[str, int, tuple[str, ...], int | None], float] = {}
    for j in jobs.tolist():
        spec = state.specs[j]
        key = (spec.model, spec.gpus, spec.types, spec.nodes)
        if key not in best:
            best[key] = float(allowed_rates(spec, reference, rates).max(initial=0.0))
    specs = [state.specs[j] for j in jobs.tolist()]
    rate = np.array([best[spec.model, spec.gpus, spec.types, spec.nodes] for spec in specs])
    return np.asarray(np.divide(samples, rate, out=np.zeros(len(jobs)), where=rate > 0))


def _figures(
    state: State,
    jobs: IntArray,
    jct_s: FloatArray,
    took_s: FloatArray,
    wait_s: FloatArray,
    alone_s: FloatArray,
    utilisation: float,
    ended: BoolArray,
    meter: WorthMeter | None,
) -> FleetFigures:
    """`took_s` is the simulated time of each job, and `alone_s` that of the same work at full speed."""
    names, worst = list(state.tenants), (0.0, "-")
    took = np.bincount(state.tenant[jobs], took_s, minlength=len(names))
    alone = np.bincount(state.tenant[jobs], alone_s, minlength=len(names))
    for u in np.flatnonzero(alone > 0).tolist():
        worst = max(worst, (float(took[u] / alone[u]), names[u]))
    return FleetFigures(
        jct_s=float(jct_s.mean()) if len(jobs) else 0.0,
        wait_s=float(wait_s.mean()) if len(jobs) else 0.0,
        utilisation=utilisation,
        worst_tenant=worst[1],
        worst_slowdown=worst[0],
        jobs=len(jobs),
        unfinished=int((~ended).sum()),
        worth={} if meter is None else meter.by_type(),
    )


def _stranded(count: int) -> FleetFigures:
    return FleetFigures(math.inf, math.inf, 0.0, "-", math.inf, 0, 0, stranded=count)
