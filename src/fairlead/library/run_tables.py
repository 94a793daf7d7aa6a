"""The document of a finished simulation, and its jobs and tenants as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairlead.library.table import ResultTable, column_of, table_of
from fairlead.model.lifecycle import Phase
from fairlead.studies.runs.simulate import Result
from fairlead.studies.runs.summary import FinishedJobs, summarise, summarise_run

JOB_UNITS = {
    **dict.fromkeys(("arrival_s", "start_s", "end_s", "jct_s", "wait_s"), "s"),
    **dict.fromkeys(("ftf", "ftf_isolated", "latency_ratio"), "ratio"),
    **dict.fromkeys(("restarts", "migrations"), "count"),
    "gpus": "GPUs",
    "gpu_hours": "GPU-hours",
}
TENANT_UNITS = {
    **dict.fromkeys(("jct_mean_s", "jct_p99_s", "wait_mean_s"), "s"),
    **dict.fromkeys(("ftf_mean", "ftf_max"), "ratio"),
    "jobs_finished": "count",
    "gpu_hours": "GPU-hours",
}


def summary_of(
    policy: str, result: Result, assumptions: Sequence[str], skipped: int = 0, profiling_share: float | None = None
) -> dict[str, Any]:
    """The document of a run."""
    return {
        "policy": policy,
        **summarise(result.state, result.finished_jobs()).to_json(),
        "jobs_skipped": skipped,
        **summarise_run(result.run),
        **({} if profiling_share is None else {"profiling_share": profiling_share}),
        "cpu_s": result.cpu_s,
        "wall_s": result.wall_s,
        "assumptions": list(assumptions),
    }


def job_table(title: str, result: Result) -> ResultTable:
    """A row per job, in the order of arrival."""
    state, finished = result.state, result.finished_jobs()
    count, specs = state.jobs, state.specs[: state.jobs]
    columns: dict[str, Any] = {
        name: column_of([getattr(spec, name) for spec in specs]) for name in ("id", "tenant", "model")
    }
    columns["phase"] = column_of([Phase(int(phase)).name.lower() for phase in state.phase[:count]])
    columns["gpus"] = state.width[:count].copy()
    columns["arrival_s"] = state.arrival_s[:count].copy()
    columns["start_s"] = state.first_start_s[:count].copy()
    columns["end_s"] = np.where(np.isfinite(state.end_s[:count]), state.end_s[:count], np.nan)
    columns |= {name: _over_all(count, finished, values) for name, values in _of_finished(finished).items()}
    columns["restarts"], columns["migrations"] = state.restarts[:count].copy(), state.migrations[:count].copy()
    columns["gpu_hours"] = state.attained_gpu_s[:count] / 3600
    return ResultTable(title, columns, JOB_UNITS)


def tenant_table(title: str, summary: Mapping[str, Any]) -> ResultTable:
    """A row per tenant, from the document of a run."""
    rows = [_tenant_row(name, tenant) for name, tenant in summary["tenants"].items()]
    return table_of(title, rows, TENANT_UNITS, ["tenant", *TENANT_UNITS])


def _of_finished(finished: FinishedJobs) -> dict[str, np.ndarray]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "jct_s": finished.jct_s,
            "wait_s": finished.wait_s,
            "ftf": np.where(finished.alone_s > 0, finished.jct_s / finished.alone_s, np.nan),
            "ftf_isolated": np.where(finished.isolated_s > 0, finished.jct_s / finished.isolated_s, np.nan),
            "latency_ratio": np.where(finished.age_s > 0, finished.wait_s / finished.age_s, np.nan),
        }


def _over_all(count: int, finished: FinishedJobs, values: np.ndarray) -> np.ndarray:
    """j  The values at the jobs that finished, NaN at the others."""
    column = np.full(count, np.nan)
    column[finished.jobs] = values
    return column


def _tenant_row(name: str, tenant: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "tenant": name,
        "jobs_finished": tenant["jobs_finished"],
        "jct_mean_s": tenant["jct_s"]["mean"],
        "jct_p99_s": tenant["jct_s"]["p99"],
        "wait_mean_s": tenant["wait_s"]["mean"],
        "ftf_mean": tenant["ftf"]["mean"],
        "ftf_max": tenant["ftf"]["max"],
        "gpu_hours": tenant["gpu_hours"],
    }
