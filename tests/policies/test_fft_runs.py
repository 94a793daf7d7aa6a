"""FFT over whole runs: compensation bounds how far behind a job falls, and no job starves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from building import job, profile, setup
from fairlead.model.allocation import Grants
from fairlead.model.jobs import JobSpec
from fairlead.model.view import View
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.fft import FFTMemory, fft
from fairlead.policies.policy import Policy
from fairlead.rates.profile import ModelFacts, Profile
from fairlead.sim.truth import World
from fairlead.studies.runs.simulate import simulate
from fairlead.studies.runs.summary import Summary, summarise

FFT, RANKED = ROUND_POLICIES["fft"], ROUND_POLICIES["fft-ranked"]
BOTH = pytest.mark.parametrize("policy", [FFT, RANKED], ids=["fft", "fft-ranked"])
ROUND_S = 300.0
TYPES = "t4:12,a10:12,v100:12"


def crowded(seed: int, jobs: int = 260, load: float = 6.0) -> tuple[list[JobSpec], Profile]:
    """Two to three times the work that 36 GPUs can do while it arrives.

    A job takes at least four rounds on a T4, so that the policy matters more than the wait for the next round.
    """
    random = np.random.default_rng(seed)
    models = [f"m{k}" for k in range(8)]
    rates = {m: {"t4": 1.0, "a10": random.uniform(1.2, 3.0), "v100": random.uniform(1.2, 4.0)} for m in models}
    facts = {m: ModelFacts(restart_s=random.uniform(15.0, 150.0)) for m in models}
    width = random.choice([1, 2, 4], jobs, p=[0.5, 0.25, 0.25])
    slow_s = ROUND_S * np.maximum(np.exp(random.normal(1.8, 1.2, jobs)), 4.0)
    arrival_s = np.cumsum(random.exponential((width * slow_s).sum() / (load * 36 * jobs), jobs))
    specs = [
        job(f"j{i:03d}", int(width[i]), float(slow_s[i] * width[i]), model=models[i % 8], at=float(arrival_s[i]))
        for i in range(jobs)
    ]
    return specs, profile(rates, facts)


def run(seed: int, **parameters: Any) -> Summary:
    jobs, speeds = crowded(seed)
    policy = FFT.with_parameters(parameters)
    return summarise(simulate(setup(jobs, TYPES, policy, speeds, round_s=ROUND_S)).state)


def test_without_compensation_the_worst_ratios_are_much_larger_at_about_equal_completion_times() -> None:
    seeds = (1, 2, 3)
    with_it, without = [run(s) for s in seeds], [run(s, kappa=0.0) for s in seeds]

    def mean(runs: list[Summary], metric: str, statistic: str) -> float:
        return float(np.mean([getattr(run, metric)[statistic] for run in runs]))

    for metric in ("ftf", "ftf_isolated"):
        assert mean(without, metric, "max") > 1.8 * mean(with_it, metric, "max")
    assert mean(without, "ftf", "p99") > 1.5 * mean(with_it, "ftf", "p99")
    assert mean(with_it, "jct_s", "mean") < 1.05 * mean(without, "jct_s", "mean")


def test_rho_is_never_negative_and_memory_holds_only_the_active_jobs() -> None:
    values: list[float] = []

    def watched(view: View, memory: FFTMemory | None) -> tuple[Grants, FFTMemory]:
        grants, kept = fft(view, memory)
        assert np.array_equal(kept.job, view.job)
        values.extend(kept.rho.tolist())
        return grants, kept

    jobs, speeds = crowded(1, jobs=120)
    world = World(seed=1, mtbf_s=40_000.0, repair_s=600.0, length_error=0.5)
    policy = replace(FFT, allocate=watched)
    state = simulate(setup(jobs, TYPES, policy, speeds, world=world, round_s=ROUND_S)).state

    assert state.active == 0
    assert min(values) >= 0.0
    assert max(values) > 0.0


# Four GPUs; every round brings four jobs of one GPU that take all of them for that round.
STREAM = profile({"short": {"v100": 1.0}, "wide": {"v100": 1.0}})
ROUNDS = 200
WIDE = job("wide", 4, 4 * 10 * ROUND_S, model="wide")  # W = 10 rounds


def stream() -> list[JobSpec]:
    return [
        job(f"s{k:03d}-{i}", 1, 0.99 * ROUND_S, model="short", at=k * ROUND_S) for k in range(ROUNDS) for i in range(4)
    ]


def first_start_rounds(policy: Policy, **parameters: Any) -> float:
    chosen = policy.with_parameters(parameters)
    state = simulate(setup([WIDE, *stream()], "v100:4", chosen, STREAM, round_s=ROUND_S)).state
    return float(state.first_start_s[state.position["wide"]] / ROUND_S)


@BOTH
def test_a_stream_of_short_jobs_starves_a_wide_one_without_compensation(policy: Policy) -> None:
    assert first_start_rounds(policy, kappa=0.0) >= ROUNDS


def test_every_job_runs_within_a_bounded_time_of_its_arrival_under_a_stream_of_short_jobs() -> None:
    """Five jobs: f = 4/(5 x 4), so fair progress is 1/5 and tau - a = 50. Waiting, after t rounds
    rho = sum of mu(k)/5 = t (t - 1) / 2 / 50 / 5. The job costs t/10 + 4 x 10 - rho, a fresh short one about 1 and has
    rho = 0. It is the cheapest GPU for GPU when t/10 + 40 - t (t - 1) / 500 < 4: at t = 163.
    """
    t = np.arange(ROUNDS)
    bound = int(t[t / 10 + 40 - t * (t - 1) / 500 < 4 * 0.99][0])

    assert bound == 163
    assert first_start_rounds(FFT) <= bound


def test_ranked_costs_start_the_wide_job_once_it_is_late_enough_to_outweigh_four_short_ones() -> None:
    """The wide job, last of five, is worth 1/25 + u - 1 per GPU with u = (t + 10) / 50; the four short ones 1, 16/25, 9/25 and
    4/25, on average 0.54. It goes before them where 1/25 + (t + 10) / 50 - 1 > 0.54: from t = 66 on.
    """
    assert first_start_rounds(RANKED) == 66


@BOTH
@pytest.mark.parametrize("kappa", [4.0, 16.0])
def test_more_compensation_starts_the_wide_job_sooner(kappa: float, policy: Policy) -> None:
    assert first_start_rounds(policy, kappa=kappa) < first_start_rounds(policy)
