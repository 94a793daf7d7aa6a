"""Least attained service in rounds: a stream of short jobs does not starve a long one."""

from __future__ import annotations

import pytest

from building import job, setup
from fairlead.model.jobs import JobSpec
from fairlead.policies import ROUND_POLICIES
from fairlead.studies.runs.simulate import simulate

POLICY = ROUND_POLICIES["hlas-rounds"]
ROUND_S = 100.0
FIRST_S = 900.0  # GPU-seconds of queue 0
SHORT = 300


def end_of_the_long_job_s(promote: float) -> float:
    """On one GPU: a job of three times queue 0, and one of a round in every round for eight hours."""
    stream: list[JobSpec] = [job(f"s{i:03d}", samples=ROUND_S, at=i * ROUND_S) for i in range(SHORT)]
    jobs = [job("long", samples=3 * FIRST_S), *stream]
    policy = POLICY.with_parameters({"promote": promote, "first_s": FIRST_S})
    state = simulate(setup(jobs, "v100:1", policy, round_s=ROUND_S)).state
    return float(state.end_s[state.position["long"]])


@pytest.mark.parametrize("promote", [1.0, POLICY.parameters["promote"]])
def test_a_job_waits_at_most_a_multiple_of_its_service(promote: float) -> None:
    """It runs for all of queue 0 three times, and before the second and the third time it waits for `promote` times that.

    A change happens at the end of a round, so each of the four may be a round late.
    """
    bound_s = 3 * FIRST_S + 2 * promote * FIRST_S + 4 * ROUND_S

    assert bound_s < SHORT * ROUND_S
    assert end_of_the_long_job_s(promote) <= bound_s


def test_without_promotion_the_stream_starves_it() -> None:
    assert end_of_the_long_job_s(promote=0.0) >= SHORT * ROUND_S + 3 * FIRST_S
