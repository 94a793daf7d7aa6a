"""The headline table: means and spreads over seeds, and the best policy if the difference is significant."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from fairlead.model.assumptions import Assumption
from fairlead.numerics.metrics import SAME
from fairlead.numerics.paired import ALPHA, distinct_pairs, sign_flip_p
from fairlead.studies.compare.answer import (
    Cell,
    ComparisonAnswer,
    FailedRun,
    FailedSeed,
    Metric,
    PolicyRow,
    TenantOutcome,
)
from fairlead.studies.compare.promise_rows import promises_over_seeds
from fairlead.studies.compare.run_records import JobColumns, RunRecord
from fairlead.studies.runs.summary import TenantSummary
from fairlead.traces.files import create_text

CSV_KIND = "compare-runs/1"
TENANTS_KIND = "compare-tenants/1"
JOBS_KIND = "compare-jobs/1"


METRICS = (
    Metric("jct_mean", "mean JCT", ("summary", "jct_s", "mean"), "s", "lower", lambda r: r.summary.jct_s["mean"]),
    Metric("jct_p99", "p99 JCT", ("summary", "jct_s", "p99"), "s", "lower", lambda r: r.summary.jct_s["p99"]),
    Metric("makespan", "makespan", ("summary", "makespan_s"), "s", "lower", lambda r: r.summary.makespan_s),
    Metric("wait_mean", "mean wait", ("summary", "wait_s", "mean"), "s", "lower", lambda r: r.summary.wait_s["mean"]),
    Metric("ftf_mean", "mean FTF", ("summary", "ftf", "mean"), "ratio", "lower", lambda r: r.summary.ftf["mean"]),
    Metric("ftf_max", "max FTF", ("summary", "ftf", "max"), "ratio", "lower", lambda r: r.summary.ftf["max"]),
    Metric(
        "ftf_at_most_1",
        "FTF <= 1",
        ("summary", "ftf", "share_at_most_1"),
        "part",
        "higher",
        lambda r: r.summary.ftf["share_at_most_1"],
    ),
    Metric(
        "latency_max",
        "max latency ratio",
        ("summary", "latency_ratio", "max"),
        "ratio",
        "lower",
        lambda r: r.summary.latency_ratio["max"],
    ),
    Metric(
        "utilisation", "utilisation", ("summary", "gpu_utilisation"), "part", "", lambda r: r.summary.gpu_utilisation
    ),
    Metric(
        "fragmented", "fragmented GPUs", ("summary", "fragmented_gpus"), "GPUs", "lower", lambda r: r.fragmented_gpus
    ),
    Metric(
        "migrations",
        "moves per job",
        ("summary", "migrations_per_job"),
        "count",
        "lower",
        lambda r: r.summary.migrations_per_job,
    ),
    Metric(
        "restarts",
        "restarts per job",
        ("summary", "restarts_per_job"),
        "count",
        "lower",
        lambda r: r.summary.restarts_per_job,
    ),
    Metric(
        "restart_gpu_hours",
        "GPU-h lost to restarts",
        ("summary", "restart_gpu_hours"),
        "GPU-h",
        "lower",
        lambda r: r.summary.restart_gpu_hours,
    ),
    Metric(
        "decision_mean",
        "mean decision",
        ("timings", "decision_s", "mean"),
        "ms",
        "",
        lambda r: r.timings.decision_s["mean"],
    ),
)


# Further columns of a run, in the CSV and in the library, but not in the headline table.
MORE_METRICS = (
    Metric(
        "idle_while_waiting",
        "idle GPUs while jobs wait",
        ("summary", "idle_gpus_while_waiting", "mean"),
        "GPUs",
        "lower",
        lambda r: r.summary.idle_gpus_while_waiting["mean"],
    ),
    Metric(
        "envy_max",
        "largest envy",
        ("fairness", "envy_max"),
        "ratio",
        "lower",
        lambda r: None if r.fairness is None else r.fairness.envy_max,
    ),
    Metric(
        "sharing_incentive_min",
        "smallest sharing incentive",
        ("fairness", "sharing_incentive_min"),
        "ratio",
        "higher",
        lambda r: None if r.fairness is None else r.fairness.sharing_incentive_min,
    ),
    Metric(
        "sharing_incentive_mean",
        "mean sharing incentive",
        ("fairness", "sharing_incentive_mean"),
        "ratio",
        "higher",
        lambda r: None if r.fairness is None else r.fairness.sharing_incentive_mean,
    ),
)


def value_of(record: RunRecord, metric: Metric) -> float | None:
    value = metric.read(record)
    return None if value is None else float(value) * (1000.0 if metric.unit == "ms" else 1.0)


def rows_of(
    policies: Sequence[str],
    loads: Sequence[float | None],
    records: Sequence[RunRecord],
    failures: Sequence[FailedRun],
) -> list[PolicyRow]:
    """One row per load and policy, in the order of the request."""
    rows = []
    for load in loads:
        runs = {p: {r.seed: r for r in records if r.policy == p and r.load == load} for p in policies}
        assumed = {policy: assumed_in(list(mine.values())) for policy, mine in runs.items()}
        best = {rules: _best_by_metric(runs, assumed, rules) for rules in set(assumed.values())}
        for policy, mine in runs.items():
            failed = [FailedSeed(f.seed, f.reason) for f in failures if f.policy == policy and f.load == load]
            cells = {
                metric.name: _cell(
                    (value_of(run, metric) for run in mine.values()), policy, best[assumed[policy]].get(metric.name)
                )
                for metric in METRICS
            }
            finished = sum(run.summary.jobs_finished for run in mine.values())
            total = sum(run.summary.jobs_total for run in mine.values())
            promises = promises_over_seeds(list(mine.values()))
            rows.append(
                PolicyRow(policy, load, len(mine), finished, total, tuple(failed), cells, assumed[policy], promises)
            )
    return rows


def assumed_in(runs: Sequence[RunRecord]) -> tuple[Assumption, ...]:
    """The assumptions of a policy's runs, each once."""
    return tuple(dict.fromkeys(rule for run in runs for rule in run.assumed))


def _best_by_metric(
    runs: Mapping[str, Mapping[int, RunRecord]],
    assumed: Mapping[str, tuple[Assumption, ...]],
    rules: tuple[Assumption, ...],
) -> dict[str, tuple[str, float] | None]:
    """The best policy by metric among those with these assumptions: results under other rules are not ranked with them."""
    alike = {policy: mine for policy, mine in runs.items() if assumed[policy] == rules}
    return {metric.name: _best_of_whole(alike, metric) for metric in METRICS if metric.better}


def _best_of_whole(runs: Mapping[str, Mapping[int, RunRecord]], metric: Metric) -> tuple[str, float] | None:
    """`best_of`; a run that left jobs unfinished counts as failed, and a policy with such a run is never best."""
    values = {
        policy: {seed: value_of(run, metric) if run.is_whole else None for seed, run in mine.items()}
        for policy, mine in runs.items()
    }
    best = best_of(values, metric.better)
    return best if best is not None and all(run.is_whole for run in runs[best[0]].values()) else None


def best_of(values: dict[str, dict[int, float | None]], better: str) -> tuple[str, float] | None:
    """(policy, p) of the policy that beats every other one, seed by seed; None if that could be chance.

    Only seeds that all policies finished count, and a policy that failed at a seed that another finished is never best: it
    may have failed where the work was heavy. The best policy has the best mean, and against every other policy the paired
    sign-flip test on distinct pairs of outcomes must yield p < ALPHA; p is the largest of these. "Better than all" is
    false if one of its parts is false, so the parts need no correction for multiple tests. A policy that finished no seed
    is not ranked.
    """
    sign = 1.0 if better == "lower" else -1.0
    known = {p: {s: v for s, v in column.items() if v is not None} for p, column in values.items()}
    ranked = [p for p, column in known.items() if column]
    seeds = sorted(set.intersection(*(set(known[p]) for p in ranked))) if ranked else []
    if len(ranked) < 2 or not seeds:
        return None
    table = {p: np.array([sign * known[p][s] for s in seeds]) for p in ranked}
    first = min(ranked, key=lambda p: float(table[p].mean()))  # the first of equals, which then beats no other
    if any(known[p].keys() - known[first].keys() for p in ranked):
        return None
    differences = [(table[first] - table[p])[distinct_pairs(table[first], table[p])] for p in ranked if p != first]
    if any(difference.mean() >= 0 for difference in differences):
        return None
    worst = max(sign_flip_p(difference) for difference in differences)
    return (first, worst) if worst < ALPHA else None


def tenants_of(
    policies: Sequence[str], loads: Sequence[float | None], records: Sequence[RunRecord]
) -> list[TenantOutcome]:
    rows = []
    for load in loads:
        for policy in policies:
            runs = [record.summary.tenants for record in records if record.policy == policy and record.load == load]
            for name in dict.fromkeys(name for tenants in runs for name in tenants):
                mine = [tenants[name] for tenants in runs if name in tenants]
                rows.append(_tenant_row(policy, load, name, mine))
    return rows


def _tenant_row(policy: str, load: float | None, tenant: str, mine: Sequence[TenantSummary]) -> TenantOutcome:
    return TenantOutcome(
        policy,
        load,
        tenant,
        jobs_finished=_mean(t.jobs_finished for t in mine),
        jct_mean_s=_mean(t.jct_s["mean"] for t in mine),
        wait_mean_s=_mean(t.wait_s["mean"] for t in mine),
        ftf_mean=_mean(t.ftf["mean"] for t in mine),
        ftf_max=_mean(t.ftf["max"] for t in mine),
        gpu_hours=_mean(t.gpu_hours for t in mine),
    )


def by_tenant(answer: ComparisonAnswer, load: float | None) -> tuple[list[str], dict[tuple[str, str], TenantOutcome]]:
    """Tenants of a load, the largest GPU-hours first, and the rows of `tenants` by (tenant, policy)."""
    rows = [row for row in answer.tenants if row.load == load]
    hours: dict[str, float] = {}
    for row in rows:
        hours[row.tenant] = hours.get(row.tenant, 0.0) + (row.gpu_hours or 0.0)
    names = sorted(hours, key=lambda name: (-hours[name], name))
    return names, {(row.tenant, row.policy): row for row in rows}


JOB_COLUMNS = ("policy", "load", "seed", *(one.name for one in fields(JobColumns)))
Labels = Mapping[str, str]  # further columns, by name: the trace and the cluster of a comparison of several


def write_csv(answer: ComparisonAnswer, path: str) -> str:
    """Write one line per run, with the reason for failed ones, and a second file for tenants, whose name is returned."""
    return write_all_csv([({}, answer)], path)


def write_all_csv(answers: Sequence[tuple[Labels, ComparisonAnswer]], path: str) -> str:
    """The same for the comparisons of several settings, with the labels of each as its first columns."""
    _write_lines(path, CSV_KIND, [run_line(labels, run) for labels, answer in answers for run in run_rows(answer)])
    beside = f"{path.removesuffix('.csv')}.tenants.csv"
    tenants = [{**labels, **_fields(row)} for labels, answer in answers for row in answer.tenants]
    _write_lines(beside, TENANTS_KIND, tenants or [{"policy": None, "load": None, "tenant": None}], empty=not tenants)
    return beside


def write_jobs_csv(answers: Sequence[tuple[Labels, ComparisonAnswer]], path: str) -> None:
    """Write one line per job that finished, of every run."""
    names = [*answers[0][0], *JOB_COLUMNS]
    rows = (line for labels, answer in answers for line in job_lines(labels, answer))
    with create_text(path) as file:
        file.write(f"# fairlead: {JOBS_KIND}\n")
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(names)
        lines.writerows([_text(line[name]) for name in names] for line in rows)


def job_lines(labels: Labels, answer: ComparisonAnswer) -> Iterator[dict[str, Any]]:
    """The jobs of every run, with what the run is about."""
    for run in answer.runs:
        columns = [getattr(run.per_job, one.name) for one in fields(JobColumns)]
        for values in zip(*columns, strict=True):
            yield {**labels, **dict(zip(JOB_COLUMNS, (run.policy, run.load, run.seed, *values), strict=True))}


def run_rows(answer: ComparisonAnswer) -> list[RunRecord | FailedRun]:
    return [*answer.runs, *answer.failures]


def run_line(labels: Labels, run: RunRecord | FailedRun) -> dict[str, Any]:
    """The columns of a run; those of a failed one are None."""
    counts = ("jobs_finished", "jobs_total")
    record = run if isinstance(run, RunRecord) else None
    return {
        **labels,
        "policy": run.policy,
        "load": run.load,
        "seed": run.seed,
        **{column_name(m): None if record is None else value_of(record, m) for m in METRICS},
        **{key: None if record is None else getattr(record.summary, key) for key in counts},
        **{column_name(m): None if record is None else value_of(record, m) for m in MORE_METRICS},
        "failed": "" if isinstance(run, RunRecord) else run.reason,
    }


def _fields(row: TenantOutcome) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(TenantOutcome)}


def _write_lines(path: str, kind: str, rows: Sequence[Mapping[str, Any]], *, empty: bool = False) -> None:
    with create_text(path) as file:
        file.write(f"# fairlead: {kind}\n")
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(rows[0])
        lines.writerows([] if empty else [[_text(value) for value in row.values()] for row in rows])


def column_name(metric: Metric) -> str:
    """The metric with its unit, if that is of time."""
    return f"{metric.name}_{metric.unit}" if metric.unit in ("s", "ms") else metric.name


def _text(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _cell(values: Iterable[float | None], policy: str, best: tuple[str, float] | None) -> Cell:
    known = np.array([value for value in values if value is not None])
    if not len(known):
        return Cell()
    low, high = float(known.min()), float(known.max())
    mean = min(
        max(float(known.mean()), low), high
    )  # because of rounding, the mean of equal values can differ from them
    sd = float(known.std(ddof=1)) if len(known) > 1 else None
    sd = 0.0 if sd is not None and sd < SAME * abs(mean) else sd
    mine = best is not None and best[0] == policy
    return Cell(mean, sd, low, high, mine, best[1] if mine and best is not None else None)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
