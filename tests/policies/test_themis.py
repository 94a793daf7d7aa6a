"""Themis by hand: which jobs may bid, which win, and how long a lease lasts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from building import Scene, granted, job, profile, setup
from fairlead.model.jobs import JobSpec
from fairlead.numerics.one_choice import ChoiceProgram
from fairlead.numerics.solve import Optimal, solve
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.themis import Leases, themis, winners
from fairlead.rounds.state import State
from fairlead.studies.runs.simulate import simulate

TWO = profile({"fast": {"v100": 4.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}})
OLD_AND_NEW = [job("old", samples=1000.0), job("new", samples=1000.0, at=1000.0)]


def test_the_auction_alone_prefers_the_job_that_a_lease_helps_most() -> None:
    """rho alone is 2,000 s for both. A lease lost: old (1000 + 1200 + 1000) / 2000 against (1000 + 1000) / 2000, a factor of
    1.6; new 2200 / 2000 against 1000 / 2000, a factor of 2.2.
    """
    view = Scene(OLD_AND_NEW, "v100:1", now_s=1000.0).view()

    assert granted(view, themis(view, None, fairness=0.0)[0]) == [[0], [1]]


def test_only_the_jobs_furthest_behind_may_bid() -> None:
    """Half of two jobs is one: the old one, whose rho is 1.6 against 1.1."""
    view = Scene(OLD_AND_NEW, "v100:1", now_s=1000.0).view()

    assert granted(view, themis(view, None, fairness=0.5)[0]) == [[1], [0]]


def test_bidders_take_the_types_with_the_largest_product() -> None:
    """`fast` gains most from the V100; it does not matter that `even` arrived first."""
    view = Scene([job("a", model="even"), job("b", model="fast")], "v100:1,k80:1", TWO).view()

    assert granted(view, themis(view, None, fairness=0.0)[0]) == [[0, 1], [1, 0]]


def test_what_bidders_leave_goes_to_the_others() -> None:
    view = Scene([job(f"j{i}") for i in range(5)], "v100:3").view()

    grants, _ = themis(view, None, fairness=0.8)

    assert grants.gpus.sum() == 3


def test_a_lease_keeps_its_gpus_and_then_they_are_offered_again() -> None:
    scene = Scene(OLD_AND_NEW, "v100:1", held={"new": ((0, 1),)}, since={"new": 1000.0}, now_s=2000.0)
    view = scene.view()
    new = view.job[view.held_gpus > 0]

    assert granted(view, themis(view, Leases(new, np.array([2200.0])))[0]) == [[0], [1]]
    assert granted(view, themis(view, Leases(new, np.array([2000.0])))[0]) == [[1], [0]]


def test_a_decision_is_valid_until_the_first_lease_ends() -> None:
    view = Scene([job("a"), job("b")], "v100:2").view()

    grants, leases = themis(view, None, lease_s=900.0)

    assert grants.answer.holds_until_s == 900.0
    assert leases.until_s.tolist() == [900.0, 900.0]


def ends(jobs: list[JobSpec], **parameters: float) -> dict[str, float]:
    policy = ROUND_POLICIES["themis"].with_parameters(parameters)
    state: State = simulate(setup(jobs, "v100:1", policy, TWO, round_s=100.0)).state
    return {spec.id: float(state.end_s[j]) for j, spec in enumerate(state.specs)}


def test_equal_jobs_take_turns_by_leases() -> None:
    """3,000 s each on one GPU, leases of 1,000 s: a, b, a, b, a ends at 5,000 s, b at 6,000 s."""
    jobs = [job("a", samples=3000.0), job("b", samples=3000.0)]

    assert ends(jobs, lease_s=1000.0) == {"a": 5000.0, "b": 6000.0}


@pytest.mark.parametrize("seed", range(8))
def test_no_other_outcome_of_the_auction_has_a_larger_product(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = [
        job(f"j{i}", int(rng.integers(1, 3)), float(rng.uniform(100, 5000)), model=("fast", "even")[i % 2])
        for i in range(5)
    ]
    view = Scene(jobs, "v100:2,k80:2", TWO, now_s=500.0).view()

    grants, _ = themis(view, None, fairness=0.0)

    assert view.total is not None
    on = np.full(5, -1)
    on[grants.jobs] = grants.types

    def gain(choice: tuple[int, ...]) -> float:
        used, total = np.zeros(2), 0.0
        for j, t in enumerate(choice):
            if t >= 0:
                used[t] += view.width[j]
                out_s = 500.0 + 1200.0 + float(view.total[j] / view.rate[j].min())  # type: ignore[index]
                total += float(np.log(out_s / (500.0 + view.total[j] / view.rate[j, t])))  # type: ignore[index]
        return total if (used <= view.capacity).all() else -np.inf

    assert gain(tuple(on)) >= max(gain(choice) for choice in product((-1, 0, 1), repeat=5)) * (1 - 1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_a_large_auction_is_as_good_as_its_bound_permits(seed: int) -> None:
    """Against the whole-number program over all cells, in one solve."""
    rng = np.random.default_rng(seed)
    jobs, types = 900, 2
    program = ChoiceProgram(
        job=np.repeat(np.arange(jobs), types),
        cost=-rng.lognormal(0.0, 1.0, jobs * types),
        start=np.arange(jobs * types + 1),
        row=np.tile(np.arange(types), jobs),
        amount=np.repeat(rng.choice([1, 2, 4, 8], jobs), types).astype(np.float64),
        low=np.full(types, -np.inf),
        high=np.array([41.0, 63.0]),
    )
    taken, solver = winners(program)

    whole = solve(replace(program.linear(), whole=np.ones(jobs * types, dtype=np.bool_)), gap=1e-6)
    assert isinstance(whole, Optimal)
    assert solver == "optimal"
    assert len(np.unique(program.job[taken])) == len(taken)
    assert (np.bincount(program.row[taken], program.amount[taken], types) <= program.high).all()
    assert float(program.cost[taken].sum()) <= whole.objective * (1 - 2e-4)
