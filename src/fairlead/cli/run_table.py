"""The summary of a run on the terminal: metrics in words, values with their units, and a table of the tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.cli.output import Format, print_json, print_table
from fairlead.model.units import format_duration, format_number

MOST_TENANTS = 20  # in the table
LABELS = {  # docs/metrics.md defines each; what is not here is shown by its own name
    "jobs_finished": "jobs finished",
    "jobs_skipped": "jobs left out",
    "makespan_s": "makespan: first arrival to last end",
    "jct_s": "job completion time (JCT)",
    "wait_s": "wait: time without GPUs",
    "starvation_s": "wait before the first start",
    "ftf": "finish-time fairness (FTF)",
    "ftf_isolated": "FTF against the isolated run",
    "latency_ratio": "latency ratio (LR): wait / expected run",
    "latency_ratio_by_gpu_hours": "LR by the size of jobs",
    "recent_latency_ratio": "LR of the jobs of an hour",
    "idle_gpus_while_waiting": "idle GPUs while a job waits",
    "gpu_utilisation": "GPU time in use",
    "migrations_per_job": "moves to other nodes per job",
    "restarts_per_job": "restarts per job",
    "restart_gpu_hours": "GPU time lost to restarts",
    "mean_active_jobs": "active jobs, mean over time",
    "jain_tenants": "Jain's index over tenants",
    "rounds": "rounds with active jobs",
    "decisions": "decisions",
    "decision_s": "CPU time of a decision",
    "profiling_share": "GPU time spent on measuring models",
    "cpu_s": "CPU time of the simulation",
    "wall_s": "real time of the simulation",
    "assumptions": "assumed",
}
_TIMINGS = ("decision_s", "cpu_s", "wall_s")


def print_run(workload: str, summary: dict[str, Any], output: Format) -> None:
    """Print the document of a run, as it is or as tables."""
    if output is Format.json:
        print_json(summary)
        return
    print_table(f"{summary['policy']} on {workload}", ["metric", "value"], _rows(summary), left=2)
    if len(summary["tenants"]) > 1:
        _print_tenants(summary["tenants"])


def _rows(summary: Mapping[str, Any]) -> list[list[str]]:
    total, finished = summary["jobs_total"], summary["jobs_finished"]
    rows = [[LABELS["jobs_finished"], f"{finished:,} of {total:,}"]]
    if finished < total:
        rows.append(
            ["jobs never finished", f"{total - finished:,}; the rows below cover the {finished:,} that finished"]
        )
    elsewhere = ("policy", "tenants", "jobs_total", "jobs_finished")
    texts = {name: value_text(name, value) for name, value in summary.items() if name not in elsewhere}
    return rows + [[LABELS.get(name, name), text] for name, text in texts.items() if text]


def value_text(name: str, value: Any) -> str:
    """A value of the summary with its unit; each part of one that has several parts is named."""
    if isinstance(value, dict) and value and all(isinstance(part, dict) for part in value.values()):
        return "\n".join(f"{_size(key)}: {value_text(name, part)}" for key, part in value.items())
    if isinstance(value, dict):
        return ", ".join(_part_text(name, key, part) for key, part in value.items())
    if isinstance(value, list):
        return "\n".join(value)
    if isinstance(value, str) or value is None:
        return value or "-"
    if name in _TIMINGS:
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g}s"
    if name in ("gpu_utilisation", "profiling_share"):
        return f"{value:.1%}"
    if name == "restart_gpu_hours":
        return f"{format_number(value)} GPU-hours"
    return format_duration(value) if name.endswith("_s") else format_number(value)


def _part_text(name: str, key: str, part: Any) -> str:
    if key == "share_at_most_1":
        return "at most 1 for " + ("-" if part is None else f"{part:.1%} of jobs")
    return f"{'median' if key == 'p50' else key} {value_text(name, part)}"


def _size(key: str) -> str:
    low, _, high = key.partition("-")
    return f"over {low} GPU-hours" if high == "inf" else f"{low} to {high} GPU-hours"


def _print_tenants(tenants: dict[str, Any]) -> None:
    columns = ["tenant", "jobs", "mean JCT", "mean wait", "mean FTF", "max FTF", "GPU-hours"]
    rows = [
        [
            name,
            f"{outcome['jobs_finished']:,}",
            format_duration(outcome["jct_s"]["mean"]),
            format_duration(outcome["wait_s"]["mean"]),
            format_number(outcome["ftf"]["mean"]),
            format_number(outcome["ftf"]["max"]),
            format_number(outcome["gpu_hours"]),
        ]
        for name, outcome in sorted(tenants.items(), key=lambda item: -item[1]["gpu_hours"])
    ]
    print_table("Tenants", columns, rows[:MOST_TENANTS])
    if len(rows) > MOST_TENANTS:
        print(f"... and {len(rows) - MOST_TENANTS} more; -o json has them all")
