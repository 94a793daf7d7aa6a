"""The result of a comparison as a document: its tables, its runs, and everything that was the same for all policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fairlead.model.assumptions import Assumption
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.loop import Settings
from fairlead.sim.truth import World
from fairlead.studies.compare.run_records import RunRecord
from fairlead.studies.fairness.promise_verdicts import Standing

KIND = "compare/1"


@dataclass(frozen=True, slots=True)
class Metric:
    """A column of the headline table."""

    name: str
    label: str
    path: tuple[str, ...]  # in a run's document
    unit: str  # s, ratio, part, GPUs, GPU-h, count or ms
    better: str  # lower, higher; empty: neither, or a timing, which depends more on the machine than on the policy
    read: Callable[[RunRecord], float | None]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "label": self.label,
            "path": list(self.path),
            "unit": self.unit,
            "better": self.better,
        }


@dataclass(frozen=True, slots=True)
class Cell:
    """A metric of a policy over seeds; all None if no run has it."""

    mean: float | None = None
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    best: bool = False
    p: float | None = None  # of being best by chance


@dataclass(frozen=True, slots=True)
class FailedSeed:
    seed: int
    reason: str


@dataclass(frozen=True, slots=True)
class PromiseOverSeeds:
    """What the audits of a policy's runs say about one promise."""

    promise: str
    standing: Standing  # broken if it was broken with any seed
    broken: int  # with how many seeds
    runs: int
    worst: float | None  # over seeds; None if it is unbounded, or was not measured
    bound: float | None  # that keeps the promise
    causes: Mapping[str, float]  # of what was missing where it was broken, mean of their parts


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One row of the headline table: a policy at a load, over seeds."""

    policy: str
    load: float | None
    runs: int
    jobs_finished: int
    jobs_total: int
    failed: tuple[FailedSeed, ...]
    metrics: Mapping[str, Cell]
    assumed: tuple[Assumption, ...] = ()  # by its runs; only rows with the same assumptions are ranked together
    promises: tuple[PromiseOverSeeds, ...] = ()  # empty where runs were not audited


@dataclass(frozen=True, slots=True)
class TenantOutcome:
    """The results of a tenant under a policy, as means over seeds."""

    policy: str
    load: float | None
    tenant: str
    jobs_finished: float | None
    jct_mean_s: float | None
    wait_mean_s: float | None
    ftf_mean: float | None
    ftf_max: float | None
    gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class FailedRun:
    policy: str
    load: float | None
    seed: int
    reason: str


@dataclass(frozen=True, slots=True)
class ComparedPolicy:
    name: str
    summary: str
    paper: str
    level: str
    knows: tuple[str, ...]
    allowed_to_know: Mapping[str, str]  # in words
    source: str  # `from` in the document: the registry, or the reference that the user typed
    parameters: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        value = asdict(self)
        return {("from" if name == "source" else name): value[name] for name in value}


@dataclass(frozen=True, slots=True)
class ComparedWorkload:
    name: str
    format: str
    sha256: str
    jobs: int
    tenants: int


@dataclass(frozen=True, slots=True)
class ComparedCluster:
    gpus: Mapping[str, int]  # by type
    nodes: int


@dataclass(frozen=True, slots=True)
class ComparisonAnswer:
    version: str
    workload: ComparedWorkload
    cluster: ComparedCluster
    settings: Settings
    world: World  # its seed is that of the first run
    restart_s: float | None
    tenant_weight: Mapping[str, float]
    sensing: Sensing
    seeds: tuple[int, ...]
    loads: tuple[float | None, ...]
    assumptions: tuple[str, ...]
    policies: tuple[ComparedPolicy, ...]
    metrics: tuple[Metric, ...]
    rows: tuple[PolicyRow, ...]
    tenants: tuple[TenantOutcome, ...]
    failures: tuple[FailedRun, ...]
    runs: tuple[RunRecord, ...]
    runs_found_done: int

    @property
    def policy_names(self) -> list[str]:
        return [policy.name for policy in self.policies]

    @property
    def most_runs(self) -> int:
        """The largest number of seeds over which a row is averaged."""
        return max((row.runs for row in self.rows), default=0)

    @property
    def rule_sets(self) -> list[tuple[Assumption, ...]]:
        """The different sets of assumptions of the rows with runs, in their order; one if all rules were the same."""
        return list(dict.fromkeys(row.assumed for row in self.rows if row.runs))

    def rows_at(self, load: float | None) -> list[PolicyRow]:
        return [row for row in self.rows if row.load == load]

    def to_json(self) -> dict[str, Any]:
        return {
            "fairlead": KIND,
            "version": self.version,
            "workload": asdict(self.workload),
            "cluster": asdict(self.cluster),
            "settings": asdict(self.settings),
            "world": {name: value for name, value in asdict(self.world).items() if name != "seed"},
            "restart_s": self.restart_s,
            "tenant_weight": dict(self.tenant_weight),
            "sensing": self.sensing,
            "seeds": list(self.seeds),
            "loads": list(self.loads),
            "assumptions": list(self.assumptions),
            "policies": [policy.to_json() for policy in self.policies],
            "metrics": [metric.to_json() for metric in self.metrics],
            "rows": [asdict(row) for row in self.rows],
            "tenants": [asdict(row) for row in self.tenants],
            "failures": [asdict(failure) for failure in self.failures],
            "runs": [run.numbers_json() for run in self.runs],
            "runs_found_done": self.runs_found_done,
        }
