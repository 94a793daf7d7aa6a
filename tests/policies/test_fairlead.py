"""Our own policy: its order of jobs, its guards, and the claims of tenants with their bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import Scene, granted, job
from fairlead.model.arrays import FloatArray
from fairlead.numerics.gittins import gittins_time
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.fairlead import fairlead
from fairlead.policies.fairlead_claims import TenantClaims, assign_with_claims, exchanged, next_credit

OURS = ROUND_POLICIES["fairlead"]
ONE_GPU = "v100:1"


def holders(scene: Scene, **parameters: float) -> list[int]:
    """GPUs by job, on the only type."""
    view = scene.view(policy=OURS)
    return [gpus for (gpus,) in granted(view, fairlead(view, None, **parameters)[0])]


def test_the_shortest_job_goes_first() -> None:
    assert holders(Scene([job("a", samples=9000.0), job("b", samples=3000.0), job("c", samples=6000.0)], ONE_GPU)) == [
        0,
        1,
        0,
    ]


def test_a_job_that_has_waited_too_long_goes_before_a_shorter_one() -> None:
    jobs = [job("a", samples=3000.0), replace(job("b", samples=2000.0), arrival_s=40_000.0)]

    late = replace(Scene(jobs, ONE_GPU), now_s=40_000.0)

    assert holders(late) == [1, 0]
    assert holders(late, kappa=0.0) == [0, 1]


def test_a_job_that_would_be_late_after_this_round_goes_now() -> None:
    """Its finish-time ratio can still be below 1, but not if it loses a round."""
    jobs = [job("a", samples=300.0), *(job(f"b{i}", samples=290.0, at=500.0) for i in range(2))]
    scene = replace(Scene(jobs, ONE_GPU), now_s=500.0)

    assert holders(scene, kappa=0.0) == [0, 1, 0]
    assert holders(scene) == [1, 0, 0]


def test_a_job_that_is_about_to_end_leaves_the_fast_type_to_a_longer_one() -> None:
    jobs = [job("a", samples=4.0, model="fast"), job("b", samples=9000.0, model="fast")]
    view = Scene(jobs, "v100:1,k80:1").view(policy=OURS)

    assert granted(view, fairlead(view, None, kappa=0.0)[0]) == [[0, 1], [1, 0]]


def test_the_job_that_decides_when_everything_ends_does_not_wait() -> None:
    jobs = [job("a", samples=200_000.0), *(job(f"b{i}", samples=9000.0 + i) for i in range(3))]

    assert holders(Scene(jobs, "v100:2"), kappa=0.0) == [1, 1, 0, 0]
    assert holders(Scene(jobs, "v100:2"), kappa=0.0, tail=0.0) == [0, 1, 1, 0]


def test_known_lengths_make_the_index_the_remaining_time() -> None:
    """With few ended jobs the four made-up lengths still count; with many, only what remains does."""
    assert gittins_time(np.array([400.0, 900.0]), np.full(5, 1000.0)) == pytest.approx([5200 / 6, 180.0])
    many = gittins_time(np.array([4000.0, 9000.0]), np.full(2000, 10_000.0))
    assert many == pytest.approx([6000.0, 1000.0], rel=0.02)


@given(st.lists(st.floats(100.0, 1e6), min_size=2, max_size=8, unique=True))
def test_without_ended_jobs_the_order_is_least_attained_service(attained_s: list[float]) -> None:
    index = gittins_time(np.array(attained_s), np.empty(0))

    assert np.argsort(index, kind="stable").tolist() == np.argsort(attained_s, kind="stable").tolist()


@given(st.lists(st.floats(0.0, 1e4), min_size=1, max_size=4), st.lists(st.floats(1.0, 1e4), min_size=0, max_size=6))
def test_the_index_is_the_best_of_all_times_to_stop(attained_s: list[float], lengths_s: list[float]) -> None:
    """The definition, with every length as a time to stop."""
    index = gittins_time(np.array(attained_s), np.array(lengths_s))

    for a, found in zip(attained_s, index.tolist(), strict=True):
        made_up = [max(a, 60.0) * 2.0**k for k in range(1, 5)]
        left = [s - a for s in (*lengths_s, *made_up) if s > a]
        assert found == pytest.approx(min(sum(min(y, d) for y in left) / sum(y <= d for y in left) for d in left))


def test_a_tenant_that_is_owed_goes_before_shorter_jobs_of_others() -> None:
    cost = np.array([[-1.0], [-9.0], [-9.0]])
    claims = TenantClaims.of(np.array([[3.0], [-3.0]]), np.array([[1.0], [1.0]]), 2.0, np.array([0, 1, 1]))

    width, free, held = np.array([1, 1, 1]), np.array([2]), np.array([-1, -1, -1])
    chosen = assign_with_claims(cost, cost < 0, width, free, held, claims, 0.3)

    assert chosen.type_of[0] == 0
    assert sorted(chosen.type_of[1:].tolist()) == [-1, 0]


def test_an_exchange_keeps_the_value_of_what_is_owed() -> None:
    credit, worth = np.array([[-10.0, 3.0], [-2.0, 3.0]]), np.array([[2.0, 1.0], [2.0, 1.0]])

    after = exchanged(credit, worth, np.full((2, 2), 4.0))

    assert after.tolist() == [[-8.5, 0.0], [-2.0, 3.0]]
    assert (worth * after).sum(axis=1) == pytest.approx((worth * credit).sum(axis=1))


def test_a_tenant_earns_nothing_on_a_type_that_its_jobs_cannot_use() -> None:
    picky = [replace(job(f"a{i}", 4, tenant="a"), types=("v100",)) for i in range(3)]
    scene, memory = Scene([*picky, *(job(f"b{i}", 4, tenant="b") for i in range(5))], "v100:8,k80:8"), None
    for number in range(50):
        _, memory = fairlead(replace(scene, now_s=360.0 * number).view(policy=OURS), memory)

    assert memory is not None
    assert memory.credit[0, 0] > 0
    assert memory.credit[0, 1] == 0


@st.composite
def crowds(draw: st.DrawFn) -> tuple[FloatArray, list[int], list[list[int]], float, int]:
    """Weights of tenants, GPUs by type, widths of every tenant's jobs, the horizon and a seed for costs."""
    users = draw(st.integers(2, 4))
    capacity = draw(st.lists(st.integers(2, 6), min_size=1, max_size=2))
    widths = st.lists(st.integers(1, min(capacity)), min_size=1, max_size=3)
    jobs = [draw(widths) for _ in range(users)]
    weight = draw(st.lists(st.floats(0.5, 3.0), min_size=users, max_size=users))
    return np.array(weight), capacity, jobs, draw(st.floats(1.0, 4.0)), draw(st.integers(0, 10**6))


@given(crowds())
def test_no_tenant_is_owed_more_than_the_bound(
    crowd: tuple[FloatArray, list[int], list[list[int]], float, int],
) -> None:
    """Every tenant always has enough gangs of its widths waiting; costs change at random, and favour one tenant."""
    weight, gpus, kinds, horizon, seed = crowd
    capacity, random = np.array(gpus), np.random.default_rng(seed)
    users, types = len(weight), len(capacity)
    total = int(capacity.sum())
    tenant = np.array([u for u, widths in enumerate(kinds) for width in widths for _ in range(total // width + 1)])
    width = np.array([width for widths in kinds for width in widths for _ in range(total // width + 1)])
    slices = weight[:, None] / weight.sum() * capacity
    worth, runs = random.uniform(1.0, 4.0, (users, types)), np.ones((len(width), types), dtype=np.bool_)
    widest = np.full(types, width.max())
    credit = np.zeros((users, types))
    bound = users * widest + capacity
    for _ in range(12):
        cost = (
            -random.uniform(0.1, 1.0, (len(width), types)) * width[:, None] * np.where(tenant == 0, 5.0, 1.0)[:, None]
        )
        claims = TenantClaims.of(credit, slices, horizon, tenant)
        chosen = assign_with_claims(cost, runs, width, capacity, np.full(len(width), -1), claims, 0.3)
        held = np.zeros((users, types))
        has = chosen.type_of >= 0
        np.add.at(held, (tenant[has], chosen.type_of[has]), width[has])
        available = chosen.available(claims, np.zeros_like(held), width, capacity)
        credit = next_credit(credit, slices, available, held, np.ones(slices.shape, dtype=np.bool_), 1.0, worth, widest)

        assert (held.sum(axis=0) <= capacity).all()
        assert (np.maximum(credit - horizon * slices, 0.0).sum(axis=0) <= bound + 1e-6).all()
