"""Gavel's shortest-job-first form, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from building import Scene, job, profile, setup
from fairlead.policies.gavel_sjf import gavel_sjf
from fairlead.studies.runs.simulate import simulate

TWO = profile({"fast": {"v100": 4.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}})


def test_the_shortest_job_gets_its_fastest_type_and_the_next_what_is_left() -> None:
    """100 s, 200 s and 300 s on the V100; weights 3, 2 and 1, a quarter of each on the K80: V100, K80, nothing."""
    jobs = [job(f"j{k}", samples=400.0 * k, model="fast") for k in (3, 1, 2)]

    shares, _ = gavel_sjf(Scene(jobs, "v100:1,k80:1", TWO).view(), None)

    assert shares.gpus == pytest.approx(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))


def test_a_job_that_gains_nothing_leaves_the_fast_gpu_to_one_that_does() -> None:
    """`even` is shorter: 2 x 1 + 1 x 1/4 if it takes the V100, 2 x 1 + 1 x 1 if it takes the K80."""
    jobs = [job("a", samples=100.0, model="even"), job("b", samples=4000.0, model="fast")]

    shares, _ = gavel_sjf(Scene(jobs, "v100:1,k80:1", TWO).view(), None)

    assert shares.gpus == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0]]))


def test_jobs_end_in_the_order_of_their_lengths() -> None:
    jobs = [job(f"j{k}", samples=1000.0 * k) for k in (3, 1, 2)]

    state = simulate(setup(jobs, "v100:1", "gavel-sjf", TWO, round_s=100.0)).state

    assert [spec.id for _, spec in sorted(zip(state.end_s.tolist(), state.specs, strict=False))] == ["j1", "j2", "j3"]


def test_the_shares_are_reused_while_the_order_stays() -> None:
    scene = Scene([job("a", samples=100.0), job("b", samples=200.0)], "v100:1", TWO)
    shares, memory = gavel_sjf(scene.view(), None)

    assert gavel_sjf(scene.view(), memory)[0] is shares
