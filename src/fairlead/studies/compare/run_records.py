"""The record of one finished run of a comparison: a document that is stored, and read instead of running again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fairlead.model.assumptions import Assumption
from fairlead.studies.fairness.promise_verdicts import PromiseVerdict, verdict_from_json
from fairlead.studies.runs.summary import Statistics, Summary, summary_from_json
from fairlead.studies.runs.timeline import Series, series_from_json

KIND = "compare-run/4"
_BESIDE_SUMMARY = ("fragmented_gpus", "rounds", "decisions")  # inside the summary of the document


@dataclass(frozen=True, slots=True)
class Timings:
    """What differs between two runs of the same case."""

    decision_s: Statistics
    cpu_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class RunFairness:
    """The audit of a run in three numbers; None if it is unbounded, or if no tenant ever wanted more."""

    envy_max: float | None
    sharing_incentive_min: float | None
    sharing_incentive_mean: float | None


@dataclass(frozen=True, slots=True)
class StayColumns:
    """Which job held which GPUs when, for the Gantt chart: one entry per stay on a node."""

    job: list[int]
    node: list[int]
    gpus: list[int]
    start_s: list[float]
    end_s: list[float]
    tenant: list[str]  # of each job, by its position


@dataclass(frozen=True, slots=True)
class JobColumns:
    """Every job that finished, in the order of arrival; ratios are None where the time alone is not known."""

    job: list[str]
    tenant: list[str]
    jct_s: list[float]
    wait_s: list[float]
    ftf: list[float | None]
    latency_ratio: list[float | None]


@dataclass(frozen=True, slots=True)
class RunRecord:
    key: str  # of the content; see `make_case`
    policy: str
    load: float | None
    seed: int
    summary: Summary
    fragmented_gpus: float | None  # on average over the run
    rounds: int
    decisions: int
    timings: Timings
    jobs: Mapping[str, list[float]]  # columns over the jobs that finished: jct_s, ftf, latency_ratio
    series: Series
    stays: StayColumns | None
    notes: tuple[str, ...] = ()  # facts that the results depend on
    assumed: tuple[Assumption, ...] = ()  # rules that runs of other policies may not have
    fairness: RunFairness | None = None  # if the comparison audits its runs
    promises: tuple[PromiseVerdict, ...] = ()  # of the audit of the run
    per_job: JobColumns = field(default_factory=lambda: JobColumns([], [], [], [], [], []))

    @property
    def is_whole(self) -> bool:
        """Whether every job finished. Means are over finished jobs, so a policy that never runs some jobs looks fast."""
        return self.summary.jobs_finished >= self.summary.jobs_total

    def to_json(self) -> dict[str, Any]:
        return {
            "fairlead": KIND,
            **self.numbers_json(),
            "jobs": dict(self.jobs),
            "series": asdict(self.series),
            "stays": None if self.stays is None else asdict(self.stays),
            "per_job": asdict(self.per_job),
        }

    def numbers_json(self) -> dict[str, Any]:
        """The document without the columns that only charts need; this is part of a comparison's result."""
        beside = {name: getattr(self, name) for name in _BESIDE_SUMMARY}
        return {
            "policy": self.policy,
            "load": self.load,
            "seed": self.seed,
            "key": self.key,
            "notes": list(self.notes),
            "assumed": [asdict(rule) for rule in self.assumed],
            "promises": [asdict(verdict) for verdict in self.promises],
            "summary": {**self.summary.to_json(), **beside},
            "timings": asdict(self.timings),
            **({} if self.fairness is None else {"fairness": asdict(self.fairness)}),
        }


def record_from_json(value: Mapping[str, Any]) -> RunRecord:
    """The record of a document; raises KeyError or TypeError if something is missing or unknown."""
    summary = dict(value["summary"])
    beside = {name: summary.pop(name) for name in _BESIDE_SUMMARY}
    return RunRecord(
        key=value["key"],
        policy=value["policy"],
        load=value["load"],
        seed=value["seed"],
        summary=summary_from_json(summary),
        **beside,
        timings=Timings(**value["timings"]),
        jobs=value["jobs"],
        series=series_from_json(value["series"]),
        stays=None if value["stays"] is None else StayColumns(**value["stays"]),
        notes=tuple(value["notes"]),
        assumed=tuple(Assumption(**rule) for rule in value["assumed"]),
        fairness=RunFairness(**value["fairness"]) if "fairness" in value else None,
        promises=tuple(verdict_from_json(verdict) for verdict in value["promises"]),
        per_job=JobColumns(**value["per_job"]),
    )
