"""One simulated run on FFT's test bed, and the contenders: FFT, our variant of it, and each form of its baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.numerics.fractional import fractional_bound
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.policy import RoundPolicy
from fairlead.rounds.loop import Settings
from fairlead.rounds.state import State
from fairlead.sim.truth import World
from fairlead.studies.papers.fft.testbed import FITTED, ROUND_S, Bed, paper_cluster, workload
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.runs.summary import Summary, summarise


@dataclass(frozen=True)
class Contender:
    """A policy with its parameters, and how its gangs are placed."""

    policy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    placer: str = "pack"

    def build(self) -> RoundPolicy[Any]:
        return ROUND_POLICIES[self.policy].with_parameters(dict(self.parameters))


FFT, RANKED = "fft", "fft-ranked"  # the paper's system, and ours with other costs
NO_COMPENSATION, REMAINING = "fft without compensation", "fft with remaining work"
VARIANTS = {
    FFT: Contender(FFT),
    NO_COMPENSATION: Contender(FFT, {"kappa": 0.0}),
    REMAINING: Contender(FFT, {"work": "remaining"}),
    RANKED: Contender(RANKED),
}
# The paper calls its Gavel "SJF-like", and lets a job join Tiresias' queue with the least load or a random one.
SHORTEST, MAX_MIN = "gavel-sjf", "gavel"
RANDOM, LEAST_LOAD = "tiresias-fft (random queue)", "tiresias-fft (least load)"
ALLOX = "allox"
BASELINES = {
    SHORTEST: Contender(SHORTEST),
    MAX_MIN: Contender(MAX_MIN),
    RANDOM: Contender("tiresias-fft", {"join_by": "random"}),
    LEAST_LOAD: Contender("tiresias-fft", {"join_by": "service"}),
    ALLOX: Contender(ALLOX),
}


def scattered(name: str) -> str:
    """The name of a baseline whose gangs are spread over hosts; the paper does not say how it places them."""
    return f"scattered {name}"


SCATTERED = {scattered(name): replace(one, placer="scatter") for name, one in BASELINES.items()}
CONTENDERS = {**VARIANTS, **BASELINES, **SCATTERED}


@cache
def run(
    name: str,
    widths: tuple[int, ...],
    jobs: int,
    seed: int,
    *,
    hosts: int = 3,
    error: float = 0.0,
    profiling_s: float = 0.0,
    bed: Bed = FITTED,
) -> dict[str, float]:
    cluster, contender = paper_cluster(hosts), CONTENDERS[name]
    trace, profile = workload(cluster, widths, jobs, seed, bed)
    world = World(seed=seed, length_error=error, profiling_s=profiling_s)
    settings = Settings(ROUND_S, placer=contender.placer)
    watch = Watch()
    result = simulate(Setup(cluster, trace, profile, contender.build(), settings, world), tick=watch)
    state = result.state
    watch.finish(state)
    best = state.best_rate[: state.jobs]
    bound = fractional_bound(
        state.arrival_s[: state.jobs], state.done[: state.jobs], best, state.width[: state.jobs], cluster.total_gpus
    )
    return {
        **_numbers(summarise(state)),
        "to_faster": watch.faster / max(watch.changes, 1),
        "fractional": watch.fractional_s / bound,
        "profiling_share": result.profiling_share,
        "decision_ms": 1000 * float(np.mean(result.run.decision_cpu_s)),
    }


def _numbers(summary: Summary) -> dict[str, float]:
    assert summary.makespan_s is not None, "no job finished"
    return {
        "jct_h": summary.jct_s["mean"] / 3600,
        "makespan_h": summary.makespan_s / 3600,
        "mean_ftf": summary.ftf["mean"],
        "max_ftf": summary.ftf["max"],
        "share_at_most_1": summary.ftf["share_at_most_1"],
        "mean_ftf_isolated": summary.ftf_isolated["mean"],
        "max_ftf_isolated": summary.ftf_isolated["max"],
        "share_at_most_1_isolated": summary.ftf_isolated["share_at_most_1"],
        "starvation_h": max(summary.starvation_s["max"], 1.0) / 3600,
        "migrations": summary.migrations_per_job or 0.0,
        "active": summary.mean_active_jobs or 0.0,
    }


class Watch:
    """Called after every decision: counts changes of type and adds up fractional completion times."""

    def __init__(self) -> None:
        self.changes = self.faster = 0
        self.fractional_s = 0.0
        self._type = np.zeros(0, dtype=np.int64)  # j  last type held; -1: none yet
        self._done = np.zeros(0)  # j
        self._at_s = 0.0

    def __call__(self, state: State) -> None:
        self._grow(state.jobs)
        jobs = state.active_jobs
        held, last = state.held_type[jobs], self._type[jobs]
        changed = (held >= 0) & (last >= 0) & (held != last)
        rate = state.best_rate[jobs[changed]]
        at = np.arange(len(rate))
        self.changes += len(rate)
        self.faster += int((rate[at, held[changed]] > rate[at, last[changed]]).sum())
        self._type[jobs] = np.where(held >= 0, held, last)
        self._progress(state, state.now_s)

    def finish(self, state: State) -> None:
        self._grow(state.jobs)
        self._progress(state, np.inf)

    def _progress(self, state: State, now_s: float) -> None:
        """Count work since the last decision at the middle of the interval, which ends now or at the job's end."""
        every_job = np.arange(state.jobs)
        done = state.done_at(every_job, min(now_s, state.now_s))
        end_s = np.where(np.isnan(state.end_s[: state.jobs]), now_s, state.end_s[: state.jobs])
        part = np.divide(done - self._done, state.total[: state.jobs])
        moved = part > 0
        middle_s = (self._at_s + np.minimum(end_s, now_s)) / 2
        self.fractional_s += float(((middle_s - state.arrival_s[: state.jobs]) * part)[moved].sum())
        self._done, self._at_s = done, now_s

    def _grow(self, jobs: int) -> None:
        more = jobs - len(self._done)
        self._type = np.concatenate((self._type, np.full(more, -1)))
        self._done = np.concatenate((self._done, np.zeros(more)))


def column(results: Sequence[dict[str, float]], name: str) -> FloatArray:
    return np.array([result[name] for result in results])
