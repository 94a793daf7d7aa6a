"""`fairlead.bench`: policies on a fixed, versioned set of small workloads, and a score card of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import exp, inf, isfinite, log
from typing import Any

from fairlead import __version__
from fairlead.library.comparing import compare, policies_of
from fairlead.library.own_policies import AnyReference, split_policies
from fairlead.library.reading import File
from fairlead.library.table import ResultTable, table_of
from fairlead.model.errors import InputError
from fairlead.policies.policy import Promise
from fairlead.studies.compare.run_records import RunRecord

VERSION = "bench/1"  # a change of workloads, seeds or formulas is a new version, so that score cards can be cited
REFERENCE = "las"  # completion times are relative to it: it needs no lengths of jobs and is blind to types
POLICIES = ("fifo", REFERENCE, "srtf", "gavel", "themis", "sia", "oef-coop", "fft", "hops")
SEEDS = (0, 1)
UNITS = {
    "jct_ratio": "ratio",
    "ftf_mean": "ratio",
    "ftf_max": "ratio",
    "latency_ratio": "ratio",
    "envy": "ratio",
    "cpu_s": "s",
}


@dataclass(frozen=True, slots=True)
class BenchWorkload:
    """One workload of the set; its jobs are generated from the seed."""

    name: str
    about: str
    cluster: str
    jobs: int
    generate: Mapping[str, Any] = field(hash=False)


_OLD, _NEW = "v100:8,p100:8,k80:8", "a100:8,v100:8,t4:8"
WORKLOADS = (
    BenchWorkload("steady", "load 2, three tenants", _OLD, 50, {"durations": "gavel", "load": 2.0, "tenants": 3}),
    BenchWorkload("crowded", "load 6, four tenants", _OLD, 50, {"durations": "gavel", "load": 6.0, "tenants": 4}),
    BenchWorkload(
        "one large tenant",
        "load 4, four tenants, one of which submits most jobs",
        _OLD,
        50,
        {"durations": "gavel", "load": 4.0, "tenants": 4, "tenant_skew": 1.5},
    ),
    BenchWorkload(
        "bursts",
        "load 1.5, four tenants, mostly short jobs in bursts",
        _NEW,
        80,
        {"durations": "philly", "arrivals": "bursty", "load": 1.5, "tenants": 4},
    ),
)


@dataclass(frozen=True, slots=True)
class Score:
    """A policy on one workload, as means over seeds, or on all of them."""

    workload: str  # empty: all of them
    policy: str
    jct_ratio: float  # mean completion time / that of the reference policy; geometric mean over runs
    ftf_mean: float
    ftf_max: float  # the largest of any job
    latency_ratio: float  # mean over jobs, then over runs
    envy: float  # the largest between two tenants, mean over runs; infinite if a tenant held nothing while it waited
    cpu_s: float  # CPU seconds of the simulations, sum
    unfinished: int  # jobs that never finished

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "envy": self.envy if isfinite(self.envy) else None}


@dataclass(frozen=True, slots=True)
class ScoreCard:
    overall: tuple[Score, ...]  # by policy
    scores: tuple[Score, ...]  # by workload and policy
    failures: tuple[str, ...]  # runs that failed; a policy with such a run has no score there

    @property
    def table(self) -> ResultTable:
        """One row per policy, over all workloads."""
        rows = [{"policy": one.policy, **{name: getattr(one, name) for name in UNITS}} for one in self.overall]
        return table_of(VERSION, rows, UNITS, ["policy", *UNITS])

    def to_json(self) -> dict[str, Any]:
        """The document of `fairlead bench -o json`."""
        return {
            "fairlead": VERSION,
            "version": __version__,
            "seeds": list(SEEDS),
            "reference": REFERENCE,
            "workloads": [asdict(workload) for workload in WORKLOADS],
            "overall": [one.to_json() for one in self.overall],
            "scores": [one.to_json() for one in self.scores],
            "failures": list(self.failures),
        }

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def bench(
    policies: str | Sequence[AnyReference] = POLICIES,
    *,
    workloads: Sequence[str] = (),
    state: File | None = None,
    fresh: bool = False,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ScoreCard:
    """Run policies on the workloads of the set (default: all) and return their score card.

    `policies` are as in `fairlead.compare`. The reference policy always runs too, because completion times are relative to
    it. Finished runs are kept in `state`, and their CPU seconds with them; `fresh` runs them again.
    """
    chosen = [one for one in WORKLOADS if not workloads or one.name in workloads]
    unknown = set(workloads) - {one.name for one in WORKLOADS}
    if unknown:
        has = ", ".join(one.name for one in WORKLOADS)
        raise InputError(f'there is no workload "{min(unknown)}" in {VERSION}; it has: {has}')
    asked = [*split_policies(policies)] if isinstance(policies, str) else [*policies]
    names = [ref.load().name for refs in policies_of(asked) for ref in refs]
    if REFERENCE not in names:
        asked.insert(0, REFERENCE)
        names.insert(0, REFERENCE)
    each = len(SEEDS) * len(names)  # runs of a workload
    runs: dict[str, list[RunRecord]] = {}
    failures: list[str] = []
    for number, workload in enumerate(chosen):
        compared = compare(
            workload.cluster,
            asked,
            generate=dict(workload.generate),
            jobs=workload.jobs,
            seeds=list(SEEDS),
            audit=True,
            state=state,
            fresh=fresh,
            workers=workers,
            progress=None if progress is None else _counted_on(progress, number * each, len(chosen) * each),
        )
        runs[workload.name] = list(compared.answer.runs)
        failures += [f"{workload.name}: {failure}" for failure in compared.failures]
    return _scored(runs, failures)


def _counted_on(progress: Callable[[int, int], None], before: int, total: int) -> Callable[[int, int], None]:
    """Progress of one workload as part of all of them."""
    return lambda done, _: progress(before + done, total)


def _scored(runs: Mapping[str, Sequence[RunRecord]], failures: Sequence[str]) -> ScoreCard:
    nothing = [(name, run) for name, of in runs.items() for run in of if not run.summary.jobs_finished]
    failures = [
        *failures,
        *(f"{name}: {run.policy} (seed {run.seed}) finished no job, so it has no score" for name, run in nothing),
    ]
    runs = {name: [run for run in of if run.summary.jobs_finished] for name, of in runs.items()}
    base = {(name, run.seed): _jct_s(run) for name, of in runs.items() for run in of if run.policy == REFERENCE}
    policies = list(dict.fromkeys(run.policy for of in runs.values() for run in of))
    mine = {
        (name, policy): [run for run in of if run.policy == policy] for name, of in runs.items() for policy in policies
    }
    whole = {
        (name, policy)
        for (name, policy), of in mine.items()
        if len(of) == len(SEEDS) and all((name, run.seed) in base for run in of)
    }
    scores = [
        _score(name, policy, {name: mine[name, policy]}, base) for name, policy in mine if (name, policy) in whole
    ]
    overall = [
        _score("", policy, {name: mine[name, policy] for name in runs}, base)
        for policy in policies
        if all((name, policy) in whole for name in runs)
    ]
    return ScoreCard(tuple(overall), tuple(scores), tuple(failures))


def _score(
    workload: str, policy: str, runs: Mapping[str, Sequence[RunRecord]], base: Mapping[tuple[str, int], float]
) -> Score:
    every = [(name, run) for name, of in runs.items() for run in of]
    count = len(every)
    summaries = [run.summary for _, run in every]
    return Score(
        workload=workload,
        policy=policy,
        jct_ratio=exp(sum(log(_jct_s(run) / base[name, run.seed]) for name, run in every) / count),
        ftf_mean=sum(one.ftf["mean"] for one in summaries) / count,
        ftf_max=max(one.ftf["max"] for one in summaries),
        latency_ratio=sum(one.latency_ratio["mean"] for one in summaries) / count,
        envy=sum(_envy(run) for _, run in every) / count,
        cpu_s=sum(run.timings.cpu_s for _, run in every),
        unfinished=sum(one.jobs_total - one.jobs_finished for one in summaries),
    )


def _jct_s(run: RunRecord) -> float:
    return float(run.summary.jct_s["mean"])


def _envy(run: RunRecord) -> float:
    """The largest envy of the audit: infinite if it names tenants and no value, 0 if no tenant ever wanted more."""
    verdict = next(one for one in run.promises if one.promise == Promise.NO_ENVY)
    return verdict.value if verdict.value is not None else inf if verdict.tenants else 0.0
