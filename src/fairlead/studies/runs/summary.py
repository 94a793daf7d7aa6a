"""The summary of a run, computed from its folded state: the same for simulated, replayed and live runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.lifecycle import Phase
from fairlead.numerics.metrics import (
    expected_run_s,
    isolated_end_s,
    isolated_rate,
    jain,
    recent,
    share_at_most,
    spread_of,
)
from fairlead.rounds.loop import Run
from fairlead.rounds.state import State

SIZES_GPU_H = (0.0, 1.0, 10.0, 50.0, float("inf"))  # Hops' classes: S, M, L, XL
RECENT_S = 3600.0

Statistics = Mapping[str, Any]  # by name, such as mean, p99 and max; None if there are no values


@dataclass(frozen=True, slots=True)
class TenantSummary:
    """The results of one tenant's finished jobs."""

    jobs_finished: int
    jct_s: Statistics
    wait_s: Statistics
    ftf: Statistics
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers of a run, with the names of its JSON document; docs/metrics.md defines each."""

    jobs_total: int
    jobs_finished: int
    makespan_s: float | None
    jct_s: Statistics
    wait_s: Statistics
    starvation_s: Statistics
    ftf: Statistics
    ftf_isolated: Statistics
    latency_ratio: Statistics
    latency_ratio_by_gpu_hours: Mapping[str, Statistics]
    recent_latency_ratio: Statistics
    idle_gpus_while_waiting: Statistics
    gpu_utilisation: float | None
    migrations_per_job: float | None
    restarts_per_job: float | None
    mean_active_jobs: float | None
    jain_tenants: float | None
    tenants: Mapping[str, TenantSummary]
    restart_gpu_hours: float | None = None  # of all jobs; None in results from before it was counted

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def summary_from_json(value: Mapping[str, Any]) -> Summary:
    return Summary(**{**value, "tenants": {name: TenantSummary(**one) for name, one in value["tenants"].items()}})


@dataclass(frozen=True, slots=True)
class FinishedJobs:
    """Columns over the jobs that finished (j)."""

    jobs: IntArray  # j  positions
    jct_s: FloatArray
    wait_s: FloatArray
    alone_s: FloatArray  # time on an isolated share, by the mean-active-jobs rule
    isolated_s: FloatArray  # time in the isolated run
    age_s: FloatArray  # Hops' expected run time
    ids: tuple[str, ...] = ()  # j
    tenants: tuple[str, ...] = ()  # j

    def ratios(self) -> dict[str, FloatArray]:
        return {
            "ftf": _ratios(self.jct_s, self.alone_s),
            "ftf_isolated": _ratios(self.jct_s, self.isolated_s),
            "latency_ratio": _ratios(self.wait_s, self.age_s),
        }


def finished_jobs(state: State, rate: FloatArray | None = None) -> FinishedJobs:
    """The jobs that finished. `rate` (j,t) replaces the speeds of the scheduler's table where those are not true."""
    ended = np.flatnonzero(state.phase[: state.jobs] == Phase.FINISHED)  # j
    capacity = state.nodes.peak  # if the cluster changed, all the GPUs of which a job may have had a slice
    arrival_s = state.arrival_s[ended]
    jct_s = state.end_s[ended] - arrival_s
    rate = (state.best_rate if rate is None else rate)[ended]
    samples, width = state.done[ended], state.width[ended]
    with np.errstate(divide="ignore", invalid="ignore"):
        crowd = np.where(jct_s > 0, (state.crowd_out[ended] - state.crowd_in[ended]) / jct_s, 1.0)
        alone_s = samples / isolated_rate(rate, width, capacity, crowd)
    return FinishedJobs(
        jobs=ended,
        jct_s=jct_s,
        wait_s=np.maximum(jct_s - state.run_s[ended], 0.0),
        alone_s=alone_s,
        isolated_s=isolated_end_s(arrival_s, samples, rate, width, capacity) - arrival_s,
        age_s=expected_run_s(samples, rate, capacity),
        ids=tuple(state.specs[j].id for j in ended.tolist()),
        tenants=tuple(state.specs[j].tenant for j in ended.tolist()),
    )


def summarise(state: State, finished: FinishedJobs | None = None) -> Summary:
    finished = finished_jobs(state) if finished is None else finished
    ended, jct_s, wait_s, alone_s = finished.jobs, finished.jct_s, finished.wait_s, finished.alone_s
    arrival_s, end_s = state.arrival_s[ended], state.end_s[ended]
    ratio = finished.ratios()
    idle = state.idle_while_waiting_gpu_s / state.waiting_time_s if state.waiting_time_s > 0 else None
    return Summary(
        jobs_total=state.jobs,
        jobs_finished=len(ended),
        makespan_s=float(end_s.max()) - state.first_arrival_s if len(ended) else None,
        jct_s=spread_of(jct_s, "mean", "p50", "p90", "p99", "max"),
        wait_s=spread_of(wait_s, "mean", "p50", "p99", "max"),
        starvation_s=spread_of(state.first_start_s[ended] - arrival_s, "mean", "p99", "max"),
        ftf=_fairness(ratio["ftf"]),
        ftf_isolated=_fairness(ratio["ftf_isolated"]),
        latency_ratio=spread_of(ratio["latency_ratio"], "mean", "p50", "p90", "p99", "max"),
        latency_ratio_by_gpu_hours=_by_size(wait_s, finished.age_s, state.width[ended]),
        recent_latency_ratio=recent(end_s[finished.age_s > 0], ratio["latency_ratio"], RECENT_S),
        idle_gpus_while_waiting={"mean": idle},
        gpu_utilisation=state.busy_gpu_s / state.up_gpu_s if state.up_gpu_s > 0 else None,
        migrations_per_job=float(state.migrations[ended].mean()) if len(ended) else None,
        restarts_per_job=float(state.restarts[ended].mean()) if len(ended) else None,
        mean_active_jobs=_over_time(state, state.crowd_s),
        jain_tenants=jain(_progress_by_tenant(state.tenant[ended], alone_s, jct_s)),
        tenants={
            name: _of_tenant(state.tenant[ended] == u, jct_s, wait_s, alone_s, state.attained_gpu_s[ended])
            for name, u in state.tenants.items()
        },
        restart_gpu_hours=None if state.served else float(state.restart_gpu_s[: state.jobs].sum()) / 3600,
    )


def summarise_run(run: Run) -> dict[str, Any]:
    decision_s = np.array(run.decision_cpu_s)
    return {
        "rounds": run.rounds,
        "decisions": len(decision_s),
        "decision_s": spread_of(decision_s, "mean", "p99", "max", "total"),
    }


def _of_tenant(
    mine: BoolArray, jct_s: FloatArray, wait_s: FloatArray, alone_s: FloatArray, gpu_s: FloatArray
) -> TenantSummary:
    return TenantSummary(
        jobs_finished=int(mine.sum()),
        jct_s=spread_of(jct_s[mine], "mean", "p99"),
        wait_s=spread_of(wait_s[mine], "mean", "p99"),
        ftf=spread_of(_ratios(jct_s[mine], alone_s[mine]), "mean", "max"),
        gpu_hours=float(gpu_s[mine].sum()) / 3600,
    )


def _by_size(wait_s: FloatArray, age_s: FloatArray, width: IntArray) -> dict[str, Statistics]:
    """Latency ratios of each size class that has jobs."""
    gpu_h = age_s * width / 3600
    classes = {f"{low:g}-{high:g}": (low <= gpu_h) & (gpu_h < high) for low, high in pairwise(SIZES_GPU_H)}
    return {
        name: spread_of(_ratios(wait_s[mine], age_s[mine]), "mean", "p50", "max")
        for name, mine in classes.items()
        if mine.any()
    }


def _ratios(over: FloatArray, under: FloatArray) -> FloatArray:
    """j  ratios of the jobs that have one: a job can be so short that its start and end round to the same time."""
    return np.asarray(over[under > 0] / under[under > 0])


def _fairness(ratio: FloatArray) -> dict[str, float | None]:
    return {**spread_of(ratio, "mean", "p50", "p99", "max"), "share_at_most_1": share_at_most(ratio, 1.0)}


def _over_time(state: State, integral: float) -> float | None:
    span_s = state.now_s - state.first_arrival_s
    return integral / span_s if span_s > 0 else None


def _progress_by_tenant(tenant: np.ndarray, alone_s: FloatArray, jct_s: FloatArray) -> FloatArray:
    """u  time that the tenant's jobs would have taken alone on their equal share / time that they took.

    A job that runs only as a mix of types has no share of its own to run on, and does not count.
    """
    has_share = np.isfinite(alone_s)
    alone, took = (np.bincount(tenant[has_share], time_s[has_share]) for time_s in (alone_s, jct_s))
    return alone[took > 0] / took[took > 0]
