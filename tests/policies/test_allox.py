"""AlloX by hand: where an arrival queues, when jobs start, and that no job is interrupted."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from building import job, profile, setup
from fairlead.model.jobs import JobSpec
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.policy import Policy
from fairlead.studies.runs.simulate import simulate

TWO = profile({"fast": {"v100": 4.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}})
ROUND_S = 100.0


def starts_and_ends(
    jobs: list[JobSpec], cluster: str, policy: Policy = ROUND_POLICIES["allox"]
) -> dict[str, tuple[float, float]]:
    state = simulate(setup(jobs, cluster, policy, TWO, round_s=ROUND_S)).state
    return {spec.id: (float(state.first_start_s[j]), float(state.end_s[j])) for j, spec in enumerate(state.specs)}


def test_an_arrival_queues_where_it_would_end_first() -> None:
    """a: 400 s on the V100, 1600 on the K80. b behind it: 800 against 1600. c, 500 s anywhere: 1300 against 500."""
    jobs = [
        job("a", samples=1600.0, model="fast"),
        job("b", samples=1600.0, model="fast"),
        job("c", samples=500.0, model="even"),
    ]

    assert starts_and_ends(jobs, "v100:1,k80:1") == {"a": (0.0, 400.0), "b": (400.0, 800.0), "c": (0.0, 500.0)}


@pytest.mark.parametrize("seed", range(10))
def test_every_arrival_adds_as_little_as_possible_to_the_total_of_completion_times(seed: int) -> None:
    """All jobs arrive at once, with one GPU of each type: at the tail of another queue a job would end later."""
    random = np.random.default_rng(seed)
    jobs = [
        job(f"j{i}", samples=float(random.integers(1, 40) * 100), model=("fast", "even")[int(random.integers(2))])
        for i in range(7)
    ]

    ends = {id_: end for id_, (_, end) in starts_and_ends(jobs, "v100:1,k80:1").items()}

    tail = [Fraction(0), Fraction(0)]
    for spec in jobs:
        assert spec.steps is not None
        speeds = (4, 1) if spec.model == "fast" else (1, 1)
        done = [tail[t] + Fraction(int(spec.steps), speeds[t]) for t in (0, 1)]
        t = done.index(min(done))
        tail[t] = Fraction(-(-done[t] // int(ROUND_S)) * int(ROUND_S))  # the next one starts at a round
        assert ends[spec.id] == pytest.approx(float(done[t]))


def test_a_job_stays_in_its_queue_though_another_type_is_idle() -> None:
    """b chose the V100, where it would end at 800; the K80 stays idle."""
    jobs = [job("a", samples=1600.0, model="fast"), job("b", samples=1600.0, model="fast")]

    assert starts_and_ends(jobs, "v100:1,k80:1")["b"] == (400.0, 800.0)


def test_a_short_job_waits_for_a_long_one_that_came_before() -> None:
    jobs = [job("a-long", samples=5000.0), job("b-short", samples=100.0, at=100.0)]

    assert starts_and_ends(jobs, "v100:1")["b-short"] == (5000.0, 5100.0)


def test_no_job_overtakes_without_the_option() -> None:
    """b needs both GPUs and waits for a; c fits next to a."""
    jobs = [job("a", samples=1000.0), job("b", 2, samples=200.0), job("c", samples=100.0)]

    assert starts_and_ends(jobs, "v100:2")["c"][0] == 1100.0
    assert starts_and_ends(jobs, "v100:2", ROUND_POLICIES["allox"].with_parameters({"overtake": True}))["c"][0] == 0.0
