"""The figures of simulated futures: overall and by tenant, with their ranges over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.model.arrays import BoolArray, IntArray
from fairlead.numerics.metrics import spread_of
from fairlead.rates.factors import RateSource
from fairlead.rounds.speeds import rate_sources
from fairlead.rounds.state import State
from fairlead.studies.runs.summary import FinishedJobs, finished_jobs
from fairlead.studies.what_if.forward import Future

# name: (what it is, its unit). A job that has not ended by the horizon counts with the time until then.
FIGURES: dict[str, tuple[str, str]] = {
    "jobs": ("jobs", "count"),
    "finished": ("finished", "count"),
    "jct_mean_s": ("mean JCT", "s"),
    "jct_p99_s": ("p99 JCT", "s"),
    "wait_mean_s": ("mean wait from now", "s"),
    "wait_p99_s": ("p99 wait from now", "s"),
    "ftf_mean": ("mean FTF", "ratio"),
    "ftf_max": ("max FTF", "ratio"),
    "sharing_incentive": ("sharing incentive", "ratio"),
    "envy": ("largest envy", "ratio"),
    "utilisation": ("utilisation", "part"),
    "restarts": ("restarts", "count"),
    "migrations": ("moves", "count"),
}


@dataclass(frozen=True, slots=True)
class Ranged:
    """A figure over seeds."""

    mean: float
    low: float
    high: float


Figures = Mapping[str, float | None]  # by the names of `FIGURES`; None where there is no value


def figures_of(future: Future, horizon_s: float) -> dict[str | None, Figures]:
    """The figures of all jobs (None) and of each tenant. Utilisation is over the whole horizon."""
    before, after, audit = future.before, future.result.state, future.audit
    jobs = np.array([after.position[id_] for id_ in future.jobs], dtype=np.int64)
    groups: dict[str | None, IntArray] = {None: jobs}
    for name, u in after.tenants.items():
        groups[name] = jobs[after.tenant[jobs] == u]
    finished = finished_jobs(after)
    measured = _measured(before, after, finished.jobs)
    figures = {
        group: _of_jobs(future, finished, measured, mine, horizon_s)
        for group, mine in groups.items()
        if group is None or len(mine)
    }
    busy_gpu_s = after.busy_gpu_s - before.busy_gpu_s
    idle_s = before.now_s + horizon_s - after.now_s  # all jobs had ended
    up_gpu_s = after.up_gpu_s - before.up_gpu_s + after.nodes.up_gpus * max(idle_s, 0.0)
    figures[None]["utilisation"] = busy_gpu_s / up_gpu_s if up_gpu_s > 0 else None
    if audit is not None:
        figures[None] |= {"sharing_incentive": audit.min_sharing_incentive, "envy": audit.max_envy}
        for name, tenant in audit.tenants.items():
            if name in figures:
                figures[name]["sharing_incentive"] = tenant.sharing_incentive
    return dict(figures)


def is_assumed(state: State, j: int) -> bool:
    """Whether all speeds of a job are assumed, because nobody measured its model. A ratio of them means nothing."""
    return all(source is RateSource.ASSUMED for source in rate_sources(state, j))


def _measured(before: State, after: State, jobs: IntArray) -> BoolArray:
    """j  whether the speeds of a job were known before the simulation, which measures what it assumes itself."""
    known: dict[tuple[str, int], bool] = {}
    for j in range(before.jobs):
        key = before.specs[j].model, before.specs[j].gpus
        if key not in known:
            known[key] = not is_assumed(before, j)
    keys = [(after.specs[j].model, after.specs[j].gpus) for j in jobs.tolist()]
    for model, gpus in keys:
        if (model, gpus) not in known:  # a submitted job
            sources = before.estimator.sources(model, gpus)
            known[model, gpus] = any(source is not RateSource.ASSUMED for source in sources)
    return np.array([known[key] for key in keys], dtype=np.bool_)


def _of_jobs(
    future: Future, finished: FinishedJobs, measured: BoolArray, jobs: IntArray, horizon_s: float
) -> dict[str, float | None]:
    before, after = future.before, future.result.state
    until_s = before.now_s + horizon_s
    rows = [future.jobs[after.specs[j].id] for j in jobs.tolist()]
    end_s = np.array([until_s if row.end_s is None else row.end_s for row in rows])
    jct, wait = end_s - after.arrival_s[jobs], np.array([row.waiting_s for row in rows])
    ended = np.isin(finished.jobs, jobs) & (finished.alone_s > 0) & measured
    ftf = spread_of(finished.jct_s[ended] / finished.alone_s[ended], "mean", "max")
    known = jobs[jobs < before.jobs]
    return {
        "jobs": float(len(jobs)),
        "finished": float(sum(row.end_s is not None for row in rows)),
        "jct_mean_s": spread_of(jct, "mean")["mean"],
        "jct_p99_s": spread_of(jct, "p99")["p99"],
        "wait_mean_s": spread_of(wait, "mean")["mean"],
        "wait_p99_s": spread_of(wait, "p99")["p99"],
        "ftf_mean": ftf["mean"],
        "ftf_max": ftf["max"],
        "restarts": float(after.restarts[jobs].sum() - before.restarts[known].sum()),
        "migrations": float(after.migrations[jobs].sum() - before.migrations[known].sum()),
    }


def over_seeds(runs: Sequence[Mapping[str | None, Figures]]) -> dict[str | None, dict[str, Ranged]]:
    """Mean, smallest and largest value of each figure, for all jobs and each tenant, over the runs that have it."""
    groups = dict.fromkeys(group for run in runs for group in run)
    return {
        group: {
            name: ranged
            for name in FIGURES
            if (ranged := _ranged(run[group].get(name) for run in runs if group in run))
        }
        for group in groups
    }


def _ranged(values: Iterable[float | None]) -> Ranged | None:
    known = [value for value in values if value is not None]
    return Ranged(float(np.mean(known)), min(known), max(known)) if known else None


def figures_to_json(figures: Mapping[str, Ranged]) -> dict[str, Any]:
    return {name: {"mean": one.mean, "low": one.low, "high": one.high} for name, one in figures.items()}
