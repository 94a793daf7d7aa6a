"""The headline table: means and spreads over seeds, and who is best where that is more than luck."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.numerics.metrics import SAME
from fairlead.numerics.paired import ALPHA, distinct_pairs, sign_flip_p
from fairlead.traces.files import create_text

CSV_KIND = "compare-runs/1"
TENANTS_KIND = "compare-tenants/1"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    label: str
    path: tuple[str, ...]  # in a run's record
    unit: str  # s, ratio, part, GPUs, count or ms
    better: str  # lower, higher; empty: neither, or a timing, which says more of the machine than of the policy


METRICS = (
    Metric("jct_mean", "mean JCT", ("summary", "jct_s", "mean"), "s", "lower"),
    Metric("jct_p99", "p99 JCT", ("summary", "jct_s", "p99"), "s", "lower"),
    Metric("makespan", "makespan", ("summary", "makespan_s"), "s", "lower"),
    Metric("wait_mean", "mean wait", ("summary", "wait_s", "mean"), "s", "lower"),
    Metric("ftf_mean", "mean FTF", ("summary", "ftf", "mean"), "ratio", "lower"),
    Metric("ftf_max", "max FTF", ("summary", "ftf", "max"), "ratio", "lower"),
    Metric("ftf_at_most_1", "FTF <= 1", ("summary", "ftf", "share_at_most_1"), "part", "higher"),
    Metric("latency_max", "max latency ratio", ("summary", "latency_ratio", "max"), "ratio", "lower"),
    Metric("utilisation", "utilisation", ("summary", "gpu_utilisation"), "part", ""),
    Metric("fragmented", "fragmented GPUs", ("summary", "fragmented_gpus"), "GPUs", "lower"),
    Metric("migrations", "moves per job", ("summary", "migrations_per_job"), "count", "lower"),
    Metric("decision_mean", "mean decision", ("timings", "decision_s", "mean"), "ms", ""),
)


def value_of(record: dict[str, Any], metric: Metric) -> float | None:
    found: Any = record
    for key in metric.path:
        found = found[key]
    return None if found is None else float(found) * (1000.0 if metric.unit == "ms" else 1.0)


def rows_of(
    policies: Sequence[str],
    loads: Sequence[float | None],
    records: Sequence[dict[str, Any]],
    failures: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    """One row per load and policy, in the order in which they were asked for."""
    rows = []
    for load in loads:
        runs = {p: {r["seed"]: r for r in records if r["policy"] == p and r["load"] == load} for p in policies}
        columns = {
            metric.name: {p: {seed: value_of(r, metric) for seed, r in runs[p].items()} for p in policies}
            for metric in METRICS
        }
        whole = {p: {seed: is_whole(r) for seed, r in runs[p].items()} for p in policies}
        best = {m.name: _best_of_whole(columns[m.name], whole, m.better) for m in METRICS if m.better}
        for policy in policies:
            failed = [
                {"seed": f["seed"], "reason": f["reason"]}
                for f in failures
                if f["policy"] == policy and f["load"] == load
            ]
            numbers = {
                metric.name: _spread(columns[metric.name][policy].values(), policy, best.get(metric.name))
                for metric in METRICS
            }
            jobs = {
                key: sum(r["summary"][key] for r in runs[policy].values()) for key in ("jobs_finished", "jobs_total")
            }
            rows.append(
                {
                    "policy": policy,
                    "load": load,
                    "runs": len(runs[policy]),
                    **jobs,
                    "failed": failed,
                    "metrics": numbers,
                }
            )
    return rows


def is_whole(record: dict[str, Any]) -> bool:
    """Whether every job of the run finished. Means are over finished jobs: who never runs some looks fast."""
    return bool(record["summary"]["jobs_finished"] >= record["summary"]["jobs_total"])


def _best_of_whole(
    values: dict[str, dict[int, float | None]], whole: dict[str, dict[int, bool]], better: str
) -> tuple[str, float] | None:
    """`best_of`, where a run that left jobs unfinished counts as failed, and who has such a run is never best."""
    counted = {p: {s: v if whole[p][s] else None for s, v in column.items()} for p, column in values.items()}
    best = best_of(counted, better)
    return best if best is not None and all(whole[best[0]].values()) else None


def best_of(values: dict[str, dict[int, float | None]], better: str) -> tuple[str, float] | None:
    """(policy, p) of the one that beats each other one, seed by seed; None where that could be luck.

    Only seeds that all of them finished count, and who failed at a seed that another finished is never best: it may have
    failed where the work was heavy. The best has the best mean there, and against every other policy the paired sign-flip
    test on distinct pairs of outcomes must say p < ALPHA; p is the largest of them. "Better than all" is false as soon as one of its parts is, so
    the parts need no correction for their number. A policy that finished no seed is not ranked.
    """
    sign = 1.0 if better == "lower" else -1.0
    known = {p: {s: v for s, v in column.items() if v is not None} for p, column in values.items()}
    ranked = [p for p, column in known.items() if column]
    seeds = sorted(set.intersection(*(set(known[p]) for p in ranked))) if ranked else []
    if len(ranked) < 2 or not seeds:
        return None
    table = {p: np.array([sign * known[p][s] for s in seeds]) for p in ranked}
    first = min(ranked, key=lambda p: float(table[p].mean()))  # of equals the first, which then beats nobody
    if any(known[p].keys() - known[first].keys() for p in ranked):
        return None
    differences = [(table[first] - table[p])[distinct_pairs(table[first], table[p])] for p in ranked if p != first]
    if any(difference.mean() >= 0 for difference in differences):
        return None
    worst = max(sign_flip_p(difference) for difference in differences)
    return (first, worst) if worst < ALPHA else None


def tenants_of(
    policies: Sequence[str], loads: Sequence[float | None], records: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What became of each tenant under each policy, as means over seeds."""
    rows = []
    for load in loads:
        for policy in policies:
            found = [r["summary"]["tenants"] for r in records if r["policy"] == policy and r["load"] == load]
            for name in dict.fromkeys(name for tenants in found for name in tenants):
                mine = [tenants[name] for tenants in found if name in tenants]
                rows.append(
                    {
                        "policy": policy,
                        "load": load,
                        "tenant": name,
                        "jobs_finished": _mean(t["jobs_finished"] for t in mine),
                        "jct_mean_s": _mean(t["jct_s"]["mean"] for t in mine),
                        "wait_mean_s": _mean(t["wait_s"]["mean"] for t in mine),
                        "ftf_mean": _mean(t["ftf"]["mean"] for t in mine),
                        "ftf_max": _mean(t["ftf"]["max"] for t in mine),
                        "gpu_hours": _mean(t["gpu_hours"] for t in mine),
                    }
                )
    return rows


def by_tenant(answer: dict[str, Any], load: float | None) -> tuple[list[str], dict[tuple[str, str], dict[str, Any]]]:
    """Tenants of a load, those with the most GPU-hours first, and the rows of `tenants` by (tenant, policy)."""
    rows = [row for row in answer["tenants"] if row["load"] == load]
    hours: dict[str, float] = {}
    for row in rows:
        hours[row["tenant"]] = hours.get(row["tenant"], 0.0) + (row["gpu_hours"] or 0.0)
    names = sorted(hours, key=lambda name: (-hours[name], name))
    return names, {(row["tenant"], row["policy"]): row for row in rows}


def write_csv(answer: dict[str, Any], path: str) -> str:
    """One line per run, failed ones with their reason; tenants beside it, in the file whose name is returned."""
    counts = ("jobs_finished", "jobs_total")
    with create_text(path) as file:
        file.write(f"# fairlead: {CSV_KIND}\n")
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["policy", "load", "seed", *(_column(m) for m in METRICS), *counts, "failed"])
        for run in answer["runs"]:
            numbers = [*(value_of(run, metric) for metric in METRICS), *(run["summary"][key] for key in counts)]
            lines.writerow([run["policy"], _text(run["load"]), run["seed"], *map(_text, numbers), ""])
        for run in answer["failures"]:
            nothing = [""] * (len(METRICS) + len(counts))
            lines.writerow([run["policy"], _text(run["load"]), run["seed"], *nothing, run["reason"]])
    beside = f"{path.removesuffix('.csv')}.tenants.csv"
    with create_text(beside) as file:
        file.write(f"# fairlead: {TENANTS_KIND}\n")
        lines = csv.writer(file, lineterminator="\n")
        columns = list(answer["tenants"][0]) if answer["tenants"] else ["policy", "load", "tenant"]
        lines.writerow(columns)
        lines.writerows([[_text(row[c]) for c in columns] for row in answer["tenants"]])
    return beside


def _column(metric: Metric) -> str:
    return f"{metric.name}_{metric.unit}" if metric.unit in ("s", "ms") else metric.name


def _text(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _spread(values: Iterable[float | None], policy: str, best: tuple[str, float] | None) -> dict[str, Any]:
    known = np.array([value for value in values if value is not None])
    if not len(known):
        return {"mean": None, "sd": None, "low": None, "high": None, "best": False, "p": None}
    mine = best is not None and best[0] == policy
    low, high = float(known.min()), float(known.max())
    mean = min(max(float(known.mean()), low), high)  # the mean of equal values can round to beside them
    sd = float(known.std(ddof=1)) if len(known) > 1 else None
    return {
        "mean": mean,
        "sd": 0.0 if sd is not None and sd < SAME * abs(mean) else sd,
        "low": low,
        "high": high,
        "best": mine,
        "p": best[1] if mine and best is not None else None,
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
