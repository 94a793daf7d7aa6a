"""Jobs placed on nodes: close to the exact program, in bounded work, and never on more GPUs than are free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairlead.model.allocation import Spot
from fairlead.model.arrays import IntArray
from fairlead.numerics import spots
from fairlead.numerics.random import stream
from fairlead.numerics.solve import NO_LIMIT
from fairlead.numerics.spots import GREEDY, SpotChoices, exact, greedy, near


def instance(seed: int, jobs: int = 12, nodes: int = 9) -> tuple[SpotChoices, IntArray]:
    """Nodes with 3 to 8 idle GPUs and speeds of their own; jobs of several widths, wide ones on two neighbours."""
    random = stream(seed, "spots")
    free = random.integers(3, 9, nodes)
    speed = random.uniform(0.75, 1.05, nodes)
    job: list[int] = []
    value: list[float] = []
    spots_of_choices: list[Spot] = []
    for i in range(jobs):
        weight = float(np.exp(random.normal()))
        for width in sorted({int(w) for w in random.integers(1, 11, 4)}):
            for n in range(nodes):
                beside = min(n + 1, nodes - 1)
                if width <= free[n]:
                    spot: Spot = ((n, width),)
                elif n < beside and width <= free[n] + free[beside]:
                    spot = ((n, int(free[n])), (beside, width - int(free[n])))
                else:
                    continue
                job.append(i)
                value.append(weight * width * float(min(speed[node] for node, _ in spot)))
                spots_of_choices.append(spot)
    return SpotChoices(np.array(job), np.array(value), spots_of_choices), free


def used(plan: spots.SpotPlan, nodes: int) -> IntArray:
    total = np.zeros(nodes, dtype=np.int64)
    for spot in plan.spots.values():
        for node, gpus in spot:
            total[node] += gpus
    return total


@pytest.mark.parametrize("seed", range(8))
def test_bounded_work_comes_near_the_optimum_and_keeps_to_what_is_free(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices, free = instance(seed)
    best = exact(choices, free, NO_LIMIT, gap=1e-6)
    monkeypatch.setattr(spots, "MOST_COLUMNS", 80)
    assert len(choices.job) > 80

    plan = near(choices, free)

    assert (used(plan, len(free)) <= free).all()
    assert 0.95 * best.value <= plan.value <= best.value * (1 + 1e-6) <= plan.bound * (1 + 2e-6)


def test_a_relaxation_that_gives_up_is_replaced_by_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    choices, free = instance(3)
    monkeypatch.setattr(spots, "MOST_COLUMNS", 80)
    monkeypatch.setattr(spots, "RELAXED", replace(spots.RELAXED, iterations=0))

    plan = near(choices, free)

    assert plan.solver == GREEDY
    assert plan.spots == greedy(choices, free).spots


def test_in_queue_order_each_job_takes_its_best_spot_that_fits() -> None:
    choices = SpotChoices(
        np.array([4, 4, 2, 2]), np.array([1.0, 3.0, 9.0, 1.0]), [((0, 1),), ((1, 2),), ((1, 2),), ((0, 2),)]
    )

    assert greedy(choices, np.array([2, 2])).spots == {4: ((1, 2),), 2: ((0, 2),)}


def test_without_jobs_the_plan_is_empty() -> None:
    assert near(SpotChoices(np.array([], dtype=np.int64), np.array([]), []), np.array([4])).spots == {}
