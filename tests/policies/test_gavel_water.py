"""Water filling over jobs and over tenants, worked by hand and compared with a slow oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import THREE, Scene, job, profile
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.numerics.levels import Gangs, Weigh, fill_water
from fairlead.numerics.solve import LinearProgram, Optimal, columns_from_entries, solve
from fairlead.policies.gavel import gavel
from fairlead.policies.gavel_water import gavel_hierarchical, gavel_waterfill

CLOSE = 1e-4


def test_jobs_that_are_not_limited_share_the_rest_by_weight() -> None:
    """Six jobs run only on the V100: a sixth each, 1.5 times their isolated share. c and d share four K80s one to two, 3
    times theirs; the plain max-min gives c, whose isolated share is smaller, everything above the level.
    """
    jobs = [*(job(f"{i}", model="v") for i in range(6)), job("c", 4, weight=1.0), job("d", 4, weight=2.0)]
    view = Scene(jobs, "v100:1,k80:4", THREE).view()

    water, plain = gavel_waterfill(view, None)[0].gpus, gavel(view, None)[0].gpus

    assert water[:6] == pytest.approx(np.tile([1 / 6, 0], (6, 1)), abs=CLOSE)
    assert water[6:] == pytest.approx(np.array([[0, 4 / 3], [0, 8 / 3]]), abs=CLOSE)
    assert plain[6:, 1] == pytest.approx([8 / 3, 4 / 3], abs=CLOSE)


def test_a_job_with_its_whole_gang_leaves_the_rest_to_others() -> None:
    """Ten GPUs: one each for a and b, which cannot use more, and eight for c."""
    view = Scene([job("a"), job("b"), job("c", 9)], "v100:10").view()

    assert gavel_waterfill(view, None)[0].gpus.ravel() == pytest.approx([1.0, 1.0, 8.0], abs=CLOSE)


def test_tenants_share_by_weight_however_many_jobs_they_have() -> None:
    """Six GPUs, weights 2 and 1: four for x's two jobs, two for y's four."""
    jobs = [job(f"x{i}", 6, tenant="x") for i in range(2)] + [job(f"y{i}", 6, tenant="y") for i in range(4)]
    view = Scene(jobs, "v100:6", tenant_weight={"x": 2.0}).view()

    assert gavel_hierarchical(view, None)[0].gpus.ravel() == pytest.approx([2.0, 2.0, 0.5, 0.5, 0.5, 0.5], abs=CLOSE)


def test_three_tenants_with_weights_of_one_two_and_three() -> None:
    """Gavel's setting for its hierarchical policy: six jobs each, three GPUs of each of three types.

    All models gain alike (4 : 2 : 1), so the cluster is worth 3 x 7 = 21 and the tenants have 3.5, 7 and 10.5 of it, a sixth of
    that for each job; no job reaches the 4 of a whole V100.
    """
    speeds = profile({"m": {"v100": 4.0, "p100": 2.0, "k80": 1.0}})
    jobs = [job(f"{tenant}{i}", model="m", tenant=tenant) for tenant in "abc" for i in range(6)]
    view = Scene(jobs, "v100:3,p100:3,k80:3", speeds, tenant_weight={"b": 2.0, "c": 3.0}).view()

    gpus = gavel_hierarchical(view, None)[0].gpus

    assert gpus @ [4.0, 2.0, 1.0] == pytest.approx(np.repeat([3.5 / 6, 7 / 6, 10.5 / 6], 6), rel=CLOSE)


def test_one_heavy_job_that_is_full_leaves_the_rest_to_light_ones() -> None:
    """Gavel's reason for water filling: weights 3, 1, 1, 1 and four equal GPUs.

    At the level where the heavy job has its whole GPU the light ones have a third each, and two GPUs would be idle.
    """
    jobs = [job("heavy", weight=3.0), *(job(f"light{i}") for i in range(3))]

    whole = gavel_waterfill(Scene(jobs, "v100:4").view(), None)[0].gpus
    short = gavel_waterfill(Scene(jobs, "v100:3").view(), None)[0].gpus

    assert whole.ravel() == pytest.approx([1.0, 1.0, 1.0, 1.0], abs=CLOSE)
    assert short.ravel() == pytest.approx([1.0, 2 / 3, 2 / 3, 2 / 3], abs=CLOSE)


def test_what_a_full_job_leaves_goes_to_its_own_tenant_first() -> None:
    """x's first job has one GPU at most: its other job has the two that are left of x's three."""
    jobs = [job("x0", 1, tenant="x"), job("x1", 6, tenant="x"), job("y", 6, tenant="y")]

    gpus = gavel_hierarchical(Scene(jobs, "v100:6").view(), None)[0].gpus

    assert gpus.ravel() == pytest.approx([1.0, 2.0, 3.0], abs=CLOSE)


def test_first_in_first_out_inside_a_tenant() -> None:
    """x's first job has two GPUs, all it can use; the second has the third; y's first job has all of y's."""
    jobs = [
        job("x0", 2, tenant="x"),
        job("y0", 6, tenant="y"),
        job("x1", 6, tenant="x", at=1.0),
        job("y1", 6, tenant="y", at=1.0),
    ]

    gpus = gavel_hierarchical(Scene(jobs, "v100:6", now_s=1.0).view(), None, inside="fifo")[0].gpus

    assert gpus.ravel() == pytest.approx([2.0, 3.0, 1.0, 0.0], abs=CLOSE)


def test_a_tenant_that_is_done_leaves_its_part_to_others() -> None:
    jobs = [job("x", 1, tenant="x"), job("y", 6, tenant="y")]

    gpus = gavel_hierarchical(Scene(jobs, "v100:6").view(), None)[0].gpus

    assert gpus.ravel() == pytest.approx([1.0, 5.0], abs=CLOSE)


def test_tenants_gain_from_types_that_others_do_not_care_about() -> None:
    """As for jobs: `fast` has the V100, `even` the K80, and both do better than with half of each."""
    speeds = profile({"fast": {"v100": 4.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}})
    jobs = [job("a", model="fast", tenant="x"), job("b", model="even", tenant="y")]

    gpus = gavel_hierarchical(Scene(jobs, "v100:1,k80:1", speeds).view(), None)[0].gpus

    assert gpus == pytest.approx(np.eye(2), abs=CLOSE)


def lexicographic(rate: FloatArray, capacity: FloatArray, unit: FloatArray) -> FloatArray:
    """Levels by the slow method: raise all, fix each job that cannot rise alone, repeat."""
    types, n = rate.shape
    fixed = np.full(n, np.nan)

    def best(goal: int | None, least: FloatArray) -> float:
        """The largest common level of the jobs that are not fixed, or the largest level of one."""
        cells = types * n
        rows, low, high = np.zeros((2 * n + types, cells + 1)), np.zeros(2 * n + types), np.full(2 * n + types, np.inf)
        for g in range(n):
            rows[g, g * types : (g + 1) * types] = rate[:, g] / unit[g]
            rows[g, cells] = -1.0 if (goal is None and np.isnan(fixed[g])) or goal == g else 0.0
            low[g] = 0.0 if rows[g, cells] else least[g]
            rows[n + g, g * types : (g + 1) * types] = 1.0
            low[n + g], high[n + g] = -np.inf, 1.0
        for t in range(types):
            rows[2 * n + t, np.arange(n) * types + t] = 1.0
            low[2 * n + t], high[2 * n + t] = -np.inf, capacity[t]
        row, column = np.nonzero(rows)
        cost = np.zeros(cells + 1)
        cost[cells] = -1.0
        form = columns_from_entries(row, column, rows[row, column], cells + 1)
        outcome = solve(LinearProgram(cost, np.zeros(cells + 1), np.full(cells + 1, np.inf), low, high, *form))
        assert isinstance(outcome, Optimal)
        return -outcome.objective

    while np.isnan(fixed).any():
        level = best(None, np.nan_to_num(fixed) * (1 - 1e-9))
        least = np.where(np.isnan(fixed), level, fixed) * (1 - 1e-9)
        for g in np.flatnonzero(np.isnan(fixed)):
            if best(int(g), least) < level * (1 + 1e-6):
                fixed[g] = level
    return fixed


@settings(max_examples=60)
@given(st.data())
def test_levels_agree_with_the_slow_method(data: st.DataObject) -> None:
    n, types = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    rates = st.sampled_from((0.0, 0.25, 0.5, 1.0))
    rate = np.array([[data.draw(rates) for _ in range(n)] for _ in range(types)])
    rate[0, rate.max(axis=0) <= 0] = 1.0
    rate /= rate.max(axis=0)
    capacity = np.array([float(data.draw(st.integers(1, 3))) for _ in range(types)])
    unit = np.array([data.draw(st.sampled_from((0.3, 1.0, 2.5))) for _ in range(n)])
    gangs = Gangs(np.ones(n, dtype=np.bool_), rate, np.ones(n), np.ones(n), capacity)

    part = fill_water(gangs, unit, lambda stopped: np.ones(n))

    assert part is not None
    assert (rate * part).sum(axis=0) / unit == pytest.approx(lexicographic(rate, capacity, unit), rel=1e-4)
    assert (part.sum(axis=1) <= capacity * (1 + 1e-6)).all()


def inherited(rate: FloatArray, capacity: FloatArray, weigh: Weigh) -> FloatArray:
    """Speeds by the slow method: all rise by their weights until one cannot; its part goes to others."""
    types, n = rate.shape
    floor, stopped = np.zeros(n), np.zeros(n, dtype=np.bool_)

    def furthest(rise: FloatArray) -> float:
        """The largest step by which speeds can go up from the floors along `rise`."""
        cells = types * n
        rows, low, high = np.zeros((2 * n + types, cells + 1)), np.zeros(2 * n + types), np.full(2 * n + types, np.inf)
        for g in range(n):
            rows[g, g * types : (g + 1) * types], rows[g, cells] = rate[:, g], -rise[g]
            rows[n + g, g * types : (g + 1) * types] = 1.0
        rows[2 * n + np.arange(types)[:, None], np.arange(n) * types + np.arange(types)[:, None]] = 1.0
        low[:n], low[n:], high[n : 2 * n], high[2 * n :] = floor * (1 - 1e-9), -np.inf, 1.0, capacity
        row, column = np.nonzero(rows)
        form = columns_from_entries(row, column, rows[row, column], cells + 1)
        cost = -np.eye(cells + 1)[cells]
        outcome = solve(LinearProgram(cost, np.zeros(cells + 1), np.full(cells + 1, np.inf), low, high, *form))
        assert isinstance(outcome, Optimal)
        return -outcome.objective

    while not stopped.all():
        rise = weigh(stopped)
        floor = floor + rise * furthest(rise)
        stopped |= np.array([furthest(np.eye(n)[g]) < 1e-6 for g in range(n)])
    return floor


def parts_of_tenants(stopped: BoolArray, tenant: IntArray, weight: FloatArray) -> FloatArray:
    rising = np.bincount(tenant, ~stopped, len(weight))
    return np.where(stopped, 0.0, weight[tenant] / np.maximum(rising[tenant], 1.0))


def first_of_tenants(stopped: BoolArray, tenant: IntArray, weight: FloatArray) -> FloatArray:
    parts = np.zeros(len(tenant))
    for u in range(len(weight)):
        rising = np.flatnonzero(~stopped & (tenant == u))
        parts[rising[:1]] = weight[u]
    return parts


def check_heirs(rate: FloatArray, capacity: FloatArray, weigh: Weigh) -> None:
    n = rate.shape[1]
    gangs = Gangs(np.ones(n, dtype=np.bool_), rate, np.ones(n), np.ones(n), capacity)

    part = fill_water(gangs, np.ones(n), weigh, inherit=True)

    assert part is not None
    assert (rate * part).sum(axis=0) == pytest.approx(inherited(rate, capacity, weigh), rel=1e-4, abs=1e-5)
    assert (part.sum(axis=1) <= capacity * (1 + 1e-6)).all()


@settings(max_examples=60)
@given(st.data())
def test_speeds_with_inherited_weights_agree_with_the_slow_method(data: st.DataObject) -> None:
    n, types = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    rates = st.sampled_from((0.0, 0.25, 0.5, 0.8, 1.0))
    rate = np.array([[data.draw(rates) for _ in range(n)] for _ in range(types)])
    rate[0, rate.max(axis=0) <= 0] = 1.0
    rate /= rate.max(axis=0)
    capacity = np.array([float(data.draw(st.integers(1, 3))) for _ in range(types)])
    tenant = np.array([data.draw(st.integers(0, 1)) for _ in range(n)])
    weight = np.array([1.0, data.draw(st.sampled_from((1.0, 2.5)))])
    inside = data.draw(st.sampled_from((parts_of_tenants, first_of_tenants)))

    check_heirs(rate, capacity, lambda stopped: inside(stopped, tenant, weight))


def test_stopped_floors_do_not_hide_the_next_limited_job() -> None:
    """The first and the last job are limited by the third type; the price of that floor is far above all later prices."""
    rate = np.array([[0.0, 0.0, 1.0, 0.3125], [0.4125, 1.0, 0.8, 0.0], [1.0, 1.0, 0.25, 1.0]])
    tenant = np.array([1, 0, 0, 0])

    check_heirs(rate, np.array([1.0, 2.0, 1.0]), lambda stopped: parts_of_tenants(stopped, tenant, np.ones(2)))


@pytest.mark.parametrize(
    ("rate", "capacity", "tenant"),
    [
        ([[1.0, 1.0, 0.25, 1.0, 1.0, 1.0], [0.625, 0.33, 1.0, 0.0, 0.0, 0.3125]], [2.0, 1.0], [1, 1, 0, 1, 1, 0]),
        ([[0.66, 25 / 33, 1.0], [1.0, 1.0, 1.0]], [1.0, 1.0], [1, 1, 1]),
    ],
    ids=["one type", "two types"],
)
def test_whole_gangs_that_fill_a_type_to_the_last_gpu_are_solved(
    rate: list[list[float]], capacity: list[float], tenant: list[int]
) -> None:
    """Almost nothing is left for the next job, and the solver must still find the solution."""
    weight, of = np.array([1.0, 2.5]), np.array(tenant)

    check_heirs(np.array(rate), np.array(capacity), lambda stopped: first_of_tenants(stopped, of, weight))


def test_hundreds_of_distinct_jobs_of_three_tenants_all_reach_a_limit() -> None:
    """No job below full speed could have more: every GPU that it gains from is used."""
    rng = np.random.default_rng(0)
    n, types = 400, 3
    rate = rng.uniform(0.1, 1.0, (types, n))
    rate /= rate.max(axis=0)
    gangs = Gangs(np.ones(n, dtype=np.bool_), rate, np.ones(n), np.ones(n), np.full(types, 100.0))
    tenant = np.arange(n) % 3

    part = fill_water(
        gangs, np.ones(n), lambda stopped: parts_of_tenants(stopped, tenant, np.array([1.0, 2.0, 5.0])), inherit=True
    )

    assert part is not None
    speed = (rate * part).sum(axis=0)
    assert part.sum(axis=1) == pytest.approx(gangs.capacity, rel=1e-6)
    below = speed < 1 - 1e-5
    spread = [np.ptp(speed[below & (tenant == u)]) for u in range(3) if (below & (tenant == u)).any()]
    assert max(spread) < 1e-5  # all jobs of a tenant have the same, except those at full speed
