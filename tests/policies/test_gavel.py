"""Max-min over types, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from building import Scene, job, profile
from fairlead.model.allocation import Shares
from fairlead.policies.gavel import CROWDED, GavelMemory, gavel

FAST_AND_EVEN = profile({"fast": {"v100": 4.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}})


def shares_of(scene: Scene, memory: GavelMemory | None = None) -> Shares:
    return gavel(scene.view(), memory)[0]


def test_the_job_that_gains_from_a_fast_gpu_gets_it() -> None:
    """In isolation each has half of both GPUs; with one type each, `fast` runs at 4 instead of 2.5 and `even` still at 1."""
    scene = Scene([job("a", model="even"), job("b", model="fast")], "v100:1,k80:1", FAST_AND_EVEN)

    assert shares_of(scene).gpus == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0]]), abs=1e-4)


def test_the_water_level_by_hand() -> None:
    """Two of `fast` and one of `even` on a V100 and a K80: isolated 2/3 of a GPU, half on each type: 5/3, 5/3, 2/3.

    `even` takes the K80 for e of the time; the two share the V100 and the rest: 4/2 + (1 - e)/2 each. The level is
    equal at e / (2/3) = (2.5 - e/2) / (5/3), e = 5/6: 1.25 times the isolated share, for all.
    """
    jobs = [job("a", model="fast"), job("b", model="even"), job("c", model="fast")]

    shares = shares_of(Scene(jobs, "v100:1,k80:1", FAST_AND_EVEN)).gpus

    rates = np.array([[4.0, 1.0], [1.0, 1.0], [4.0, 1.0]])
    isolated = np.array([5 / 3, 2 / 3, 5 / 3])
    assert (rates * shares).sum(axis=1) / isolated == pytest.approx(np.full(3, 1.25), rel=1e-4)
    assert shares[1] == pytest.approx([0.0, 5 / 6], abs=1e-3)


def test_the_example_of_the_paper() -> None:
    """Three jobs on one V100 and one K80 (section 4.1): each runs 8 to 9 % faster than with a third of both GPUs."""
    rates = np.array([[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]])
    speeds = profile({f"m{j}": dict(zip(("v100", "k80"), row, strict=True)) for j, row in enumerate(rates.tolist())})

    shares = shares_of(Scene([job(f"j{j}", model=f"m{j}") for j in range(3)], "v100:1,k80:1", speeds)).gpus

    assert shares == pytest.approx(np.array([[0.45, 0.0], [0.45, 0.09], [0.09, 0.91]]), abs=0.006)
    assert (rates * shares).sum(axis=1) / (rates.sum(axis=1) / 3) == pytest.approx(np.full(3, 1.09), abs=0.01)


def test_weights_scale_the_share() -> None:
    """Three GPUs, weights 1 and 2, gangs wide enough: one and two."""
    jobs = [job("a", 3, weight=1.0), job("b", 3, weight=2.0)]

    assert shares_of(Scene(jobs, "v100:3")).gpus.ravel() == pytest.approx([1.0, 2.0], abs=1e-4)


def test_equal_jobs_get_equal_shares() -> None:
    shares = shares_of(Scene([job(f"j{i}") for i in range(5)], "v100:3")).gpus

    assert shares == pytest.approx(np.full((5, 1), 0.6), abs=1e-5)


def test_a_job_whose_only_type_is_down_does_not_lower_the_level() -> None:
    scene = Scene([job("a", model="v"), job("b", model="even")], "v100:1,k80:1", down=[0])

    assert shares_of(scene).gpus == pytest.approx(np.array([[0.0, 0.0], [0.0, 1.0]]), abs=1e-5)


def test_nothing_is_solved_again_while_nothing_changes() -> None:
    scene = Scene([job("a"), job("b")], "v100:1")
    first, memory = gavel(scene.view(), None)

    again, _ = gavel(scene.view(), memory)

    assert again is first


def test_the_memory_does_not_change_the_shares() -> None:
    """This holds through arrivals, and when a solver with too many old groups is replaced."""
    memory = None
    for n in range(1, 2 * CROWDED):
        jobs = [job(f"j{i}", 1 + i % 4, model=("fast", "even")[i % 2], weight=1.0 + i % 3) for i in range(n)]
        scene = Scene(jobs, "v100:3,k80:4", FAST_AND_EVEN)
        warm, memory = gavel(scene.view(), memory)
        assert warm.gpus == pytest.approx(shares_of(scene).gpus, abs=1e-4)
