"""Gavel's objectives that need lengths, worked by hand: makespan and finish-time fairness."""

from __future__ import annotations

import numpy as np
import pytest

from building import Scene, job, profile, setup, start
from fairlead.model.arrays import FloatArray
from fairlead.model.events import Arrived
from fairlead.numerics.levels import Gangs
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.gavel_ftf import finish_time_shares, gavel_ftf
from fairlead.policies.gavel_makespan import gavel_makespan
from fairlead.rounds.look import look
from fairlead.studies.runs.simulate import simulate

TWO = profile({"fast": {"v100": 4.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}})
CLOSE = 1e-5


def test_makespan_gives_jobs_shares_in_proportion_to_their_lengths() -> None:
    """600 s and 300 s of work on one GPU: two thirds and one third, both end after 900 s."""
    shares, _ = gavel_makespan(Scene([job("a", samples=600.0), job("b", samples=300.0)], "v100:1").view(), None)

    assert shares.gpus.ravel() == pytest.approx([2 / 3, 1 / 3], abs=CLOSE)


def test_makespan_over_two_types_by_hand() -> None:
    """`fast` has 400 samples, `even` 100; T is shortest where `fast` has the V100 and `even` the K80: 100 s both."""
    jobs = [job("a", samples=400.0, model="fast"), job("b", samples=100.0, model="even")]

    shares, _ = gavel_makespan(Scene(jobs, "v100:1,k80:1", TWO).view(), None)

    assert shares.gpus == pytest.approx(np.array([[1.0, 0.0], [0.0, 1.0]]), abs=CLOSE)


def test_what_the_last_job_does_not_need_goes_to_jobs_that_end_earlier() -> None:
    """Two GPUs: the long job keeps one; the short ones do not have to wait for it."""
    jobs = [job("a", samples=10_000.0), job("b", samples=100.0), job("c", samples=100.0)]

    shares, _ = gavel_makespan(Scene(jobs, "v100:2").view(), None)

    assert shares.gpus.ravel() == pytest.approx([1.0, 0.5, 0.5], abs=1e-2)
    assert shares.gpus.sum() == pytest.approx(2.0, abs=CLOSE)


def test_jobs_of_a_makespan_run_end_together() -> None:
    jobs = [job("a", samples=60_000.0), job("b", samples=30_000.0)]

    state = simulate(setup(jobs, "v100:1", "gavel-makespan", TWO, round_s=100.0)).state

    assert state.end_s[:2].max() == pytest.approx(90_000.0)
    assert state.end_s[:2].min() > 88_000.0


def test_fair_finish_times_of_new_jobs_are_equal_shares() -> None:
    """Alone each has half a GPU, so for any lengths rho is the same for all at half a GPU each."""
    shares, _ = gavel_ftf(Scene([job("a", samples=600.0), job("b", samples=300.0)], "v100:1").view(), None)

    assert shares.gpus.ravel() == pytest.approx([0.5, 0.5], abs=CLOSE)


def test_a_job_that_has_waited_catches_up() -> None:
    """Two jobs of 1,000 s on one GPU, one has waited for 1,000 s.

    Alone both take 2,000 s. rho = (1000 + 1000 / x) / 2000 = (1000 / (1 - x)) / 2000: x^2 + x - 1 = 0, x = 0.618.
    """
    scene = Scene([job("a", samples=1000.0), job("b", samples=1000.0, at=1000.0)], "v100:1", now_s=1000.0)

    shares, _ = gavel_ftf(scene.view(), None)

    golden = (5**0.5 - 1) / 2
    assert shares.gpus.ravel() == pytest.approx([golden, 1 - golden], abs=CLOSE)


def test_what_is_done_counts_at_the_isolated_rate_of_its_time() -> None:
    """a alone on the GPU did 500 of 1,000 samples in 500 s. Then b arrives: half a GPU would take 1,000 s for the rest.

    T_a = 500 + 1000, T_b = 2000. rho_a = (500 + 500 / x) / 1500 = rho_b = (1000 / (1 - x)) / 2000.
    """
    scene = Scene([job("a", samples=1000.0), job("b", samples=1000.0, at=500.0)], "v100:1")
    state = Scene(scene.jobs[:1], "v100:1").state()
    start(state, "a", ((0, 1),), 0.0)
    policy = ROUND_POLICIES["gavel-ftf"]
    _, memory = gavel_ftf(look(state, policy, 100.0), None)
    state.pass_time(500.0)
    state.fold(Arrived(500.0, scene.jobs[1]))

    shares, _ = gavel_ftf(look(state, policy, 100.0), memory)

    x = float(shares.gpus[0, 0])
    assert shares.gpus.sum() == pytest.approx(1.0, abs=CLOSE)
    assert (500 + 500 / x) / 1500 == pytest.approx(1000 / (1 - x) / 2000, rel=1e-4)


def worst_ratio(
    rate: FloatArray, shares: FloatArray, to_go_s: FloatArray, since_s: FloatArray, alone: FloatArray
) -> float:
    speed = (rate * shares).sum(axis=1) / rate.max(axis=1)
    return float(((since_s + to_go_s / speed) / (to_go_s / alone)).max())


@pytest.mark.parametrize("seed", range(5))
def test_a_search_finds_no_division_with_a_smaller_worst_ratio(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, capacity = 6, np.array([2, 2])
    rate, to_go_s, since_s = rng.uniform(1, 5, (n, 2)), rng.uniform(10, 100, n), rng.uniform(0, 200, n)
    gangs = Gangs.of(rate, np.ones(n, dtype=np.int64), np.ones(n), capacity)
    alone = (gangs.rate.mean(axis=0) * capacity.sum() / n).clip(max=1.0)

    shares = finish_time_shares(gangs, to_go_s, since_s, np.zeros(n), alone)

    assert shares is not None
    best = worst_ratio(rate, shares, to_go_s, since_s, alone)
    assert np.isfinite(best)
    for _ in range(3000):
        other = shares + rng.normal(0, rng.choice([0.3, 0.03, 0.003]), shares.shape)
        other = np.maximum(other, 1e-9)
        other /= np.maximum(other.sum(axis=1, keepdims=True), 1.0)
        other *= np.minimum(1.0, capacity / other.sum(axis=0))
        assert worst_ratio(rate, other, to_go_s, since_s, alone) >= best * (1 - 1e-5)


@pytest.mark.parametrize("allocate", [gavel_makespan, gavel_ftf])
def test_shares_are_kept_until_a_job_arrives_or_their_time_is_over(allocate: object) -> None:
    assert callable(allocate)
    jobs = [job("a", samples=1e5), job("b", samples=1e6)]
    first, memory = allocate(Scene(jobs, "v100:1").view(), None)

    assert allocate(Scene(jobs, "v100:1", now_s=1799.0).view(), memory)[0] is first
    assert allocate(Scene(jobs, "v100:1", now_s=1800.0).view(), memory)[0] is not first
    assert allocate(Scene(jobs, "v100:2").view(), memory)[0] is not first
    assert allocate(Scene([*jobs, job("c")], "v100:1").view(), memory)[0] is not first
