"""The results of a comparison: tables over seeds, runs, tenants and jobs, and the files that they are written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.library.grids import Labels
from fairlead.library.reading import File
from fairlead.library.table import ResultTable, column_of, table_of
from fairlead.model.errors import InputError
from fairlead.model.words import choose
from fairlead.studies.compare.answer import ComparisonAnswer, Metric, PolicyRow, TenantOutcome
from fairlead.studies.compare.compare import Comparison
from fairlead.studies.compare.fillings import Conclusion, conclusions
from fairlead.studies.compare.table import (
    JOB_COLUMNS,
    METRICS,
    MORE_METRICS,
    column_name,
    job_lines,
    run_line,
    run_rows,
    write_all_csv,
    write_jobs_csv,
)


@dataclass(frozen=True, eq=False)
class ComparedSetting:
    """One workload on one cluster under one set of rules, with all policies."""

    labels: Labels  # trace, cluster, and what is varied
    comparison: Comparison


@dataclass(frozen=True, eq=False)
class PolicyComparison:
    """The results of a comparison. With several settings, their labels are the first columns of each table."""

    settings: tuple[ComparedSetting, ...]
    fills: bool = False  # the gaps of its traces were filled in several ways

    @property
    def answer(self) -> ComparisonAnswer:
        """The whole document of the only setting; see `settings` for several."""
        if len(self.settings) != 1:
            raise InputError(f"there are {len(self.settings)} settings; read each from `settings`")
        return self.settings[0].comparison.answer

    @cached_property
    def table(self) -> ResultTable:
        """One row per policy (and setting, and load): means over seeds with their spread, the best marked where a paired
        test over seeds supports it.
        """
        rows = [(labels, row) for labels, answer in self._labelled for row in answer.rows]
        has_loads = any(row.load is not None for _, row in rows)
        columns: dict[str, Any] = {name: column_of([labels[name] for labels, _ in rows]) for name in rows[0][0]}
        columns["policy"] = column_of([row.policy for _, row in rows])
        if has_loads:
            columns["load"] = column_of([row.load for _, row in rows])
        columns["runs"] = column_of([row.runs for _, row in rows])
        cells = {column_name(metric): [row.metrics[metric.name] for _, row in rows] for metric in METRICS}
        columns |= {name: column_of([cell.mean for cell in column]) for name, column in cells.items()}
        spread = {name: _floats([cell.sd for cell in column]) for name, column in cells.items()}
        best = {name: np.array([cell.best for cell in column]) for name, column in cells.items()}
        return ResultTable("means over seeds", columns, _units(METRICS), spread, best)

    @cached_property
    def runs(self) -> ResultTable:
        """One row per run, with its seed; the column `failed` has the reason of a run that failed."""
        rows = [run_line(labels, run) for labels, answer in self._labelled for run in run_rows(answer)]
        return table_of("runs", rows, _units((*METRICS, *MORE_METRICS)), list(rows[0]))

    @cached_property
    def jobs(self) -> ResultTable:
        """One row per job that finished, of every run."""
        rows = [line for labels, answer in self._labelled for line in job_lines(labels, answer)]
        units = {"jct_s": "s", "wait_s": "s", "ftf": "ratio", "latency_ratio": "ratio"}
        return table_of("jobs", rows, units, [*self._labelled[0][0], *JOB_COLUMNS])

    @cached_property
    def tenants(self) -> ResultTable:
        """One row per tenant and policy, as means over seeds."""
        names = [field.name for field in fields(TenantOutcome)]
        outcomes = [(labels, outcome) for labels, answer in self._labelled for outcome in answer.tenants]
        rows = [{**labels, **{name: getattr(outcome, name) for name in names}} for labels, outcome in outcomes]
        units = {name: "s" if name.endswith("_s") else "ratio" for name in names[4:-1]}
        return table_of("tenants", rows, {**units, "gpu_hours": "GPU-hours"}, [*self._labelled[0][0], *names])

    @cached_property
    def conclusions(self) -> ResultTable:
        """One row per metric (and trace and cluster): which policy is best, and in how many ways to fill in the trace.

        Without `fillings` the ways are the seeds.
        """
        rows = [
            {**labels, **{name: getattr(one, name) for name in ("metric", "best", "holds", "ways", "order_holds")}}
            | {"otherwise": ", ".join(f"{name}: {ways}" for name, ways in one.otherwise.items())}
            | {"order": " < ".join(one.order)}
            for labels, found in self.held_conclusions()
            for one in found
        ]
        return table_of("conclusions", rows, {}, list(rows[0]))

    def held_conclusions(self) -> list[tuple[Labels, list[Conclusion]]]:
        """The same with the labels that the settings of each list share."""
        groups: dict[tuple[str, str], list[ComparedSetting]] = {}
        for one in self.settings:
            groups.setdefault((one.labels["trace"], one.labels["cluster"]), []).append(one)
        return [
            ({"trace": trace, "cluster": cluster}, conclusions([one.comparison.answer for one in group]))
            for (trace, cluster), group in groups.items()
        ]

    def row(self, policy: str, load: float | None = None) -> PolicyRow:
        """The row of a policy, with the spread, the range and the p-value of every metric."""
        names = {row.policy: row for row in self.answer.rows_at(load)}
        return names[choose("policy", policy, names)]

    @property
    def failures(self) -> list[str]:
        """Runs that failed, with their reasons."""
        return [
            f"{one.policy} (seed {one.seed}): {one.reason}" for _, answer in self._labelled for one in answer.failures
        ]

    def write_page(self, path: File, window_h: tuple[float, float] | None = None) -> list[Path]:
        """Write a page for the browser; with several settings, one for each, numbered. `window_h` is for Gantt charts."""
        from fairlead.studies.report.page import write_page

        paths = numbered(Path(path), len(self.settings))
        for one, setting in zip(paths, self.settings, strict=True):
            write_page(setting.comparison, str(one), window_h)
        return paths

    def write_figures(self, folder: File, window_h: tuple[float, float] | None = None) -> list[Path]:
        """Draw PDF and PNG figures into a folder; with several settings, into one for each, numbered."""
        from fairlead.studies.report.comparison_figures import draw_all

        several, paths = len(self.settings) > 1, list[Path]()
        for number, setting in enumerate(self.settings, start=1):
            where = Path(folder, str(number)) if several else Path(folder)
            paths += map(Path, draw_all(setting.comparison, str(where), window_h))
        return paths

    def write_csv(self, path: File) -> list[Path]:
        """Write the files of `fairlead compare --csv`: a line per run, and one per tenant in a second file."""
        beside = write_all_csv(self._labelled, str(path))
        return [Path(path), Path(beside)]

    def write_jobs_csv(self, path: File) -> None:
        """Write the file of `fairlead compare --jobs-csv`: a line per job that finished, of every run."""
        write_jobs_csv(self._labelled, str(path))

    def to_json(self) -> dict[str, Any]:
        """The document that `fairlead compare -o json` prints."""
        held = [{**labels, **asdict(one)} for labels, found in self.held_conclusions() for one in found]
        more = {"conclusions": held} if self.fills else {}
        if len(self.settings) == 1:
            return {**self.answer.to_json(), **more}
        return {
            **more,
            "fairlead": "compare-settings/1",
            "settings": [{"labels": one.labels, **one.comparison.answer.to_json()} for one in self.settings],
        }

    @property
    def _labelled(self) -> list[tuple[dict[str, str], ComparisonAnswer]]:
        several = len(self.settings) > 1
        return [(one.labels if several else {}, one.comparison.answer) for one in self.settings]

    def __repr__(self) -> str:
        first = self.settings[0].comparison.answer
        return (
            f"<Comparison of {', '.join(first.policy_names)} in {len(self.settings)} settings, {len(self.runs)} runs>"
        )

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def numbered(path: Path, count: int) -> list[Path]:
    """The path itself, or `page-1.html`, `page-2.html`, ... if there are several."""
    return [path] if count == 1 else [path.with_name(f"{path.stem}-{i}{path.suffix}") for i in range(1, count + 1)]


def _units(metrics: Sequence[Metric]) -> dict[str, str]:
    return {column_name(metric): metric.unit for metric in metrics}


def _floats(values: Sequence[float | None]) -> Any:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
