"""Sia: goodput over types and widths."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from building import Scene, job, profile
from fairlead.model.view import View
from fairlead.policies.sia import sia

TWO = profile({"fast": {"v100": 4.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}})


def granted(view: View, **parameters: float) -> dict[int, tuple[int, int]]:
    grants, _ = sia(view, None, **parameters)
    return {
        j: (t, n) for j, t, n in zip(grants.jobs.tolist(), grants.types.tolist(), grants.gpus.tolist(), strict=True)
    }


def test_the_job_that_gains_gets_the_fast_type() -> None:
    view = Scene([job("a"), job("b", model="fast")], "v100:1,k80:1", TWO).view()

    assert granted(view) == {0: (1, 1), 1: (0, 1)}


def test_elastic_jobs_share_the_gpus() -> None:
    """p < 0 makes the mean fair: 2 and 2 (2 x 0.71) is better than 3 and 1 (0.58 + 1)."""
    view = Scene([job("a", widths=(1, 2, 3)), job("b", widths=(1, 2, 3))], "v100:4").view()

    assert granted(view) == {0: (0, 2), 1: (0, 2)}


def test_the_penalty_decides_between_one_wide_job_and_two_narrow_ones() -> None:
    view = Scene([job("a", 4), job("b", 2), job("c", 2)], "v100:4").view()

    assert set(granted(view)) == {1, 2}


def test_a_move_that_gains_less_than_the_restart_takes_is_not_made() -> None:
    speeds = profile({"m": {"k80": 1.0, "v100": 1.2}})
    held = {"a": ((0, 1),)}
    early = Scene([job("a", model="m", samples=1e5)], "k80:1,v100:1", speeds, held, now_s=100.0, restart_s=60.0)
    late = Scene([job("a", model="m", samples=1e6)], "k80:1,v100:1", speeds, held, now_s=50_000.0, restart_s=60.0)

    assert granted(early.view()) == {0: (0, 1)}
    assert granted(late.view()) == {0: (1, 1)}


def test_grants_are_in_the_order_of_latency_ratios() -> None:
    jobs = [job("long", samples=1e5), job("short", samples=10.0), job("middle", samples=1e3)]

    grants, _ = sia(Scene(jobs, "v100:4", now_s=50.0).view(), None)

    assert grants.jobs.tolist() == [1, 2, 0]


@pytest.mark.parametrize("seed", range(10))
def test_no_type_is_granted_twice_over(seed: int) -> None:
    random = np.random.default_rng(seed)
    jobs = [
        job(f"j{i}", int(w), model=("fast", "even")[i % 2], widths=tuple(sorted({int(w), 1, 3})))
        for i, w in enumerate(random.integers(1, 5, 12))
    ]

    grants, _ = sia(Scene(jobs, "v100:6,k80:8", TWO).view(), None)

    assert (np.bincount(grants.types, grants.gpus, 2) <= [6, 8]).all()


@pytest.mark.parametrize("seed", range(12))
def test_no_other_choice_of_configurations_has_a_better_power_mean(seed: int) -> None:
    """All choices of five jobs at once, directly by the formula: p = -1/2, lambda = 1.1."""
    random = np.random.default_rng(seed)
    speeds = {"fast": (4.0, 1.0), "even": (1.0, 1.0)}
    jobs = [
        job(f"j{i}", model=("fast", "even")[i % 2], widths=tuple(sorted({1, *random.integers(2, 5, 2).tolist()})))
        for i in range(5)
    ]
    capacity = random.integers(2, 6, 2).tolist()

    def cost(choice: tuple[tuple[int, int] | None, ...]) -> float:
        """Goodput of w GPUs on type t over that of the job's smallest configuration, one GPU of its slower type."""
        if any(sum(c[1] for c in choice if c and c[0] == t) > capacity[t] for t in (0, 1)):
            return np.inf
        made = [c and c[1] * speeds[spec.model][c[0]] for spec, c in zip(jobs, choice, strict=True)]
        return sum(1.1 if goodput is None else goodput**-0.5 for goodput in made)

    chosen = granted(Scene(jobs, f"v100:{capacity[0]},k80:{capacity[1]}", TWO).view())

    options = [[None, *((t, w) for t in (0, 1) for w in spec.widths)] for spec in jobs]
    least = min(cost(choice) for choice in product(*options))
    assert cost(tuple(chosen.get(j) for j in range(5))) == pytest.approx(least, rel=1e-3)


def test_jobs_that_stay_are_planned_around() -> None:
    """`a` would shrink so that `b` has two; inside a round it keeps its three, and `b` has the remaining one."""
    jobs = [job("a", widths=(1, 2, 3)), job("b", widths=(1, 2))]
    scene = Scene(jobs, "v100:4", held={"a": ((0, 3),)}, now_s=3600.0)
    pinned = np.array([True, False])

    assert granted(scene.view()) == {0: (0, 2), 1: (0, 2)}
    assert granted(replace(scene.view(), pinned=pinned)) == {0: (0, 3), 1: (0, 1)}
