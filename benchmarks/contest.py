"""The policy `fairlead` against every other policy, on settings that were fixed before it was tuned.

    python -m benchmarks.contest --data DIR                   the held-out settings, all policies, as a table
    python -m benchmarks.contest --data DIR --tuning          the settings for tuning instead
    python -m benchmarks.contest --data DIR --param balance=0.2

Finished runs are kept in the cache and never run twice for the same code. Runs of other policies do not depend on the
files of ours (`OURS`), so that tuning it does not repeat them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy starts: a pool of threads would spin

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest_settings import SETTINGS, ContestSetting
from fairlead.model.errors import FairleadError
from fairlead.policies import REGISTRY, ROUND_POLICIES
from fairlead.policies.policy import Knows, TaskPolicy
from fairlead.sim.loops import loop_for
from fairlead.studies.compare.cases import common_digest
from fairlead.studies.fairness.journal_audit import AuditingJournal, Auditor
from fairlead.studies.runs.digest import code_digest
from fairlead.studies.runs.process_pool import run_in_processes
from fairlead.studies.runs.simulate import simulate
from fairlead.studies.runs.store import Store, default_folder
from fairlead.studies.runs.summary import summarise

OURS = (
    "policies/fairlead.py",
    "policies/fairlead_claims.py",
    "numerics/gittins.py",
    "policies/__init__.py",
)
PACKAGES = ("model", "numerics", "placement", "policies", "rates", "rounds", "sim", "studies", "traces")
METRICS = ("jct", "ftf", "lr", "p99", "makespan")
TITLES = {"jct": "mean JCT", "ftf": "max FTF", "lr": "max LR", "p99": "p99 JCT", "makespan": "makespan"}
AUDITED = ("oef-coop", "oef-noncoop", "gandiva-fair", "gavel-hierarchical")  # besides ours
LEAST_LR = 0.1  # a job that waits for a tenth of its run time is not late; below this ratios of ratios mean nothing
Numbers = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class ContestRun:
    setting: str
    seed: int
    policy: str
    parameters: tuple[tuple[str, Any], ...]
    data: Path

    @property
    def ours(self) -> bool:
        return self.policy.startswith("fairlead")

    def key(self) -> str:
        code = code_digest(_counts if self.ours else _counts_for_others)
        text = json.dumps([code, self.policy, self.parameters, _inputs_digest(self.setting, self.seed, self.data)])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def run_one(run: ContestRun) -> Numbers:
    """The metrics of one run."""
    setting = next(one for one in SETTINGS if one.name == run.setting)
    policy = REGISTRY[run.policy].with_parameters(dict(run.parameters))
    setup = replace(setting.build(run.data, run.seed), policy=policy)
    auditor = Auditor.of(setup.header()) if run.ours or run.policy in AUDITED else None
    result = simulate(setup, watch=None if auditor is None else AuditingJournal(auditor))
    summary = summarise(result.state, result.finished_jobs())
    decision_s = np.array(result.run.decision_cpu_s or [0.0])
    return {
        "jct": summary.jct_s["mean"],
        "p99": summary.jct_s["p99"],
        "makespan": summary.makespan_s,
        "ftf": summary.ftf["max"],
        "lr": summary.latency_ratio["max"],
        "moves": summary.restarts_per_job,
        "unfinished": float(summary.jobs_total - summary.jobs_finished),
        "incentive": None if auditor is None else auditor.audit().min_sharing_incentive,
        "decision_ms": 1000 * float(decision_s.mean()),
        "cpu_s": result.cpu_s,
    }


def runs_of(
    settings: Sequence[ContestSetting],
    policies: Sequence[str],
    data: Path,
    parameters: tuple[tuple[str, Any], ...] = (),
    seeds: int | None = None,
) -> list[ContestRun]:
    """Every run that can be simulated, with the first `seeds` seeds of each setting; first seeds first."""
    runs: list[tuple[int, ContestRun]] = []
    for setting in settings:
        if setting.needs and not (data / setting.needs).exists():
            continue
        world = setting.build(data, setting.seeds[0]).world
        for name in policies:
            try:
                loop_for(REGISTRY[name]).check(world)
            except FairleadError:
                continue
            own = parameters if name.startswith("fairlead") else ()
            runs += [
                (k, ContestRun(setting.name, seed, name, own, data)) for k, seed in enumerate(setting.seeds[:seeds])
            ]
    return [run for _, run in sorted(runs, key=lambda one: one[0])]


def measure(
    runs: Sequence[ContestRun], store: Store, workers: int = 1, *, stored: bool = False
) -> dict[ContestRun, Numbers]:
    """The numbers of all runs; finished ones are read from the store, and with `stored` only those."""
    known: dict[ContestRun, Numbers] = {}
    for run in runs:
        text = store.find(run.key())
        if text is not None:
            known[run] = json.loads(text)
    todo = [run for run in runs if run not in known and not stored]
    for done, outcome in enumerate(run_in_processes(run_one, todo, workers), 1):
        if outcome.result is None:
            print(
                f"{outcome.task.setting}, seed {outcome.task.seed}, {outcome.task.policy}: {outcome.reason}", flush=True
            )
            continue
        store.keep(outcome.task.key(), json.dumps(outcome.result))
        known[outcome.task] = outcome.result
        if done % 50 == 0:
            print(f"{done} of {len(todo)} runs", flush=True)
    return known


@dataclass(frozen=True, slots=True)
class Score:
    """How a policy compares on one setting: each metric over the best of all other policies, mean over seeds."""

    setting: str
    ratio: Mapping[str, float]
    best: Mapping[str, str]  # the policy that is best in each metric
    moves: float
    incentive: float | None
    decision_ms: float
    beaten_by: tuple[str, ...]  # policies that are better in JCT and in max FTF


def scores(policy: str, numbers: Mapping[ContestRun, Numbers], rivals: Sequence[str]) -> list[Score]:
    by: dict[tuple[str, str], list[Numbers]] = {}
    for run, values in numbers.items():
        by.setdefault((run.setting, run.policy), []).append(values)
    found = []
    for setting in dict.fromkeys(run.setting for run in numbers):
        if (setting, policy) not in by:
            continue
        whole = {
            name: {metric: _mean(by[setting, name], metric) for metric in METRICS}
            for name in (policy, *rivals)
            if (setting, name) in by and not _mean(by[setting, name], "unfinished")
        }
        mine = whole.pop(policy, None)
        if mine is None or not whole:
            continue
        best = {metric: min(whole, key=lambda name, m=metric: whole[name][m]) for metric in METRICS}  # type: ignore[misc]
        own = by[setting, policy]
        incentives = [one["incentive"] for one in own if one["incentive"] is not None]
        found.append(
            Score(
                setting,
                {metric: _ratio(metric, mine[metric], whole[best[metric]][metric]) for metric in METRICS},
                best,
                _mean(own, "moves"),
                min(incentives) if incentives else None,
                _mean(own, "decision_ms"),
                tuple(n for n, one in whole.items() if one["jct"] < mine["jct"] and one["ftf"] < mine["ftf"]),
            )
        )
    return found


def _ratio(metric: str, ours: float, best: float) -> float:
    least = LEAST_LR if metric == "lr" else 0.0
    return max(ours, least) / max(best, least)


def _mean(runs: Sequence[Numbers], metric: str) -> float:
    values = [one[metric] for one in runs]
    return float(np.mean([0.0 if value is None else value for value in values]))


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def print_scores(policy: str, found: Sequence[Score]) -> None:
    """A Markdown table: the ratio of each metric to the best of all others, with the name of the best."""
    print(f"| {policy} | " + " | ".join(TITLES[m] for m in METRICS) + " | moves | incentive | ms | beaten by |")
    print("| --- " * (len(METRICS) + 5) + "|")
    for one in found:
        cells = " | ".join(f"{one.ratio[m]:.2f} ({one.best[m]})" for m in METRICS)
        incentive = "-" if one.incentive is None else f"{one.incentive:.2f}"
        beaten = ", ".join(one.beaten_by) or "-"
        print(f"| {one.setting} | {cells} | {one.moves:.1f} | {incentive} | {one.decision_ms:.1f} | {beaten} |")
    if found:
        cells = " | ".join(f"{geometric_mean([one.ratio[m] for one in found]):.3f}" for m in METRICS)
        print(f"| geometric mean | {cells} | | | | |")


def _counts(source: Path) -> bool:
    return source.parts[0] in PACKAGES


def _counts_for_others(source: Path) -> bool:
    return _counts(source) and source.as_posix() not in OURS


@cache
def _inputs_digest(setting: str, seed: int, data: Path) -> str:
    """Of the jobs, speeds, cluster and world of a run, wherever they come from."""
    return common_digest(next(one for one in SETTINGS if one.name == setting).build(data, seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of public traces")
    parser.add_argument("--results", type=Path, default=default_folder("contest"), help="folder of finished runs")
    parser.add_argument("--tuning", action="store_true", help="the settings for tuning instead of those held out")
    parser.add_argument("--policies", default="", help="only these, by name; default: all that decide rounds")
    parser.add_argument("--settings", default="", help="only settings whose names contain one of these words")
    parser.add_argument("--of", default="fairlead", help="the policy that is held against the others")
    parser.add_argument("--param", action="append", default=[], help="name=value, of our policy", metavar="NAME=VALUE")
    parser.add_argument("--seeds", type=int, help="only the first seeds of each setting", metavar="N")
    parser.add_argument("--stored", action="store_true", help="only what is finished; nothing is run")
    parser.add_argument("--jobs", type=int, default=1, help="parallel processes")
    asked = parser.parse_args()
    words = [word for word in asked.settings.split(",") if word]
    settings = [
        one for one in SETTINGS if one.tuning == asked.tuning and (not words or any(word in one.name for word in words))
    ]
    policies = [name for name in asked.policies.split(",") if name] or [*ROUND_POLICIES]
    parameters = tuple((name, json.loads(value)) for name, _, value in (one.partition("=") for one in asked.param))
    runs = runs_of(settings, policies, asked.data, parameters, asked.seeds)
    numbers = measure(runs, Store(asked.results, "--results"), asked.jobs, stored=asked.stored)
    blind = not _knows_lengths(asked.of)
    rivals = [n for n in policies if not n.startswith("fairlead") and not (blind and _knows_lengths(n))]
    print_scores(asked.of, scores(asked.of, numbers, [name for name in rivals if name != asked.of]))


def _knows_lengths(name: str) -> bool:
    policy = REGISTRY[name]
    return isinstance(policy, TaskPolicy) or Knows.LENGTHS in policy.knows


if __name__ == "__main__":
    from benchmarks.contest import main as run  # by this name the processes of the pool find `run_one`

    run()
