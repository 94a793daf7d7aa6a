"""Hops: latency ratio, window, sensitivity, configurations, weights, plans, and the two-stage solver."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from building import Scene, job, profile, setup, speed
from fairlead.model.allocation import Spot
from fairlead.model.cluster import NodeGroup, build_cluster
from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.model.view import View
from fairlead.numerics import configurations
from fairlead.numerics.metrics import expected_run_s
from fairlead.numerics.random import stream
from fairlead.numerics.solve import NO_LIMIT
from fairlead.numerics.spots import GREEDY, SpotChoices, SpotPlan, exact
from fairlead.placement.pool import neighbour_spots
from fairlead.policies import ROUND_POLICIES, hops_planner
from fairlead.policies.hops import SLACK, adjust, hops, hops_late, late_by, queue_order, window
from fairlead.policies.hops_planner import SIGMA, Planner, free_for_planning, nodes_alike, urgencies
from fairlead.rates.age import latency_ratio, restart_factor
from fairlead.rates.configurations import Kinds
from fairlead.rates.profile import ModelFacts, Profile
from fairlead.rounds.loop import When
from fairlead.studies.runs.simulate import simulate
from fairlead.studies.runs.summary import summarise

TWO = profile({"fast": {"v100": 4.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}})
# `light` loses 10 % when spread, `heavy` half.
SPREAD = profile(
    {"light": {"v100": 1.0}, "heavy": {"v100": 1.0}},
    {"light": ModelFacts(spread=0.9), "heavy": ModelFacts(spread=0.5)},
)


def placed(view: View, **parameters: object) -> tuple[Spot, ...]:
    return hops(view, None, **parameters)[0].spots  # type: ignore[arg-type]


def placed_late(view: View, **parameters: object) -> tuple[Spot, ...]:
    return hops_late(view, None, **parameters)[0].spots  # type: ignore[arg-type]


# ---- latency ratio, queue, window --------------------------------------------------------------------------------


def test_the_latency_ratio_is_waiting_over_the_run_time_expected_over_types() -> None:
    """6 V100s at 4 samples/s a GPU and 2 K80s at 1; widths 1, 2, 3, so 2 GPUs on average: 0.75 x 10 s + 0.25 x 40 s."""
    view = Scene([job("a", 2, 80.0, model="fast", widths=(1, 2, 3))], "v100:6x2,k80:2", TWO, now_s=35.0).view()

    assert latency_ratio(view).tolist() == pytest.approx([35.0 / (0.75 * 10.0 + 0.25 * 40.0)])


def test_waiting_time_does_not_grow_while_a_job_runs() -> None:
    scene = Scene([job("a", samples=100.0)], held={"a": ((0, 1),)}, since={"a": 20.0}, now_s=70.0)

    assert latency_ratio(scene.view()).tolist() == pytest.approx([0.2])


def test_a_job_of_unknown_length_counts_as_the_median() -> None:
    jobs = [job("a", samples=100.0), job("b", samples=300.0), replace(job("c"), steps=None)]

    ratio = latency_ratio(Scene(jobs, now_s=30.0).view())

    assert ratio.tolist() == pytest.approx([0.3, 0.1, 0.15])


def test_the_window_ends_with_the_job_that_reaches_the_gpus() -> None:
    queue, least = np.array([3, 0, 1, 2]), np.array([2, 4, 1, 3])

    assert window(queue, least, 5).tolist() == [3, 0]
    assert window(queue, least, 6).tolist() == [3, 0, 1]
    assert window(queue, least, 100).tolist() == [3, 0, 1, 2]


def test_the_longer_wait_goes_first_and_ties_go_by_arrival() -> None:
    assert queue_order(np.array([1.0, 3.0, 1.0, 2.0])).tolist() == [1, 3, 0, 2]


def test_weights_are_lifted_only_if_a_priority_is_not_positive() -> None:
    assert urgencies(np.array([1.0, 4.0])).tolist() == [0.25, 1.0]
    assert urgencies(np.array([0.0, 4.0])).tolist() == pytest.approx([0.01 / 4.01, 1.0])
    assert urgencies(np.array([-3.0, 1.0])).tolist() == pytest.approx([0.01 / 4.01, 1.0])
    assert urgencies(np.array([0.0, 1.0]), bias=1.0).tolist() == [0.5, 1.0]
    assert urgencies(np.zeros(2), bias=0.0).tolist() == [1.0, 1.0]


# ---- sensitivity and configurations ------------------------------------------------------------------------------


def test_sensitivity_is_what_a_second_node_costs() -> None:
    view = Scene([job("a", model="light"), job("b", model="heavy")], "v100:4", SPREAD).view()

    assert Kinds(view).sensitivity().tolist() == pytest.approx([1 / 0.9, 2.0])


def test_neighbours_are_filled_one_after_another_and_only_as_few_as_needed() -> None:
    free = np.array([2, 3, 1, 4])

    assert neighbour_spots([0, 1, 2, 3], free, 5) == [((0, 2), (1, 3)), ((2, 1), (3, 4))]
    assert neighbour_spots([1, 3], free, 5) == [((1, 3), (3, 2)), ((1, 1), (3, 4))]
    assert neighbour_spots([0, 1, 2, 3], free, 4) == [((3, 4),)]
    assert neighbour_spots([0, 1], free, 6) == []


def test_only_a_job_that_loses_little_is_spread() -> None:
    jobs = [job("a", 6, model="light"), job("b", 2, model="heavy", widths=(2, 6))]
    view = Scene(jobs, "v100:12x4", SPREAD, now_s=10.0).view()

    light, heavy = placed(view)

    assert len(light) == 2
    assert heavy != ()
    assert len(heavy) == 1


def test_a_gang_larger_than_every_node_is_spread_even_if_it_loses_much() -> None:
    view = Scene([job("a", 6, model="heavy", widths=(6, 8))], "v100:8x4", SPREAD, now_s=10.0).view()

    (spot,) = placed(view)

    assert sum(gpus for _, gpus in spot) == 8


def test_unequal_nodes_hold_a_gang_together() -> None:
    cluster = build_cluster([NodeGroup(1, "v100", 3), NodeGroup(1, "v100", 2), NodeGroup(1, "v100", 1)])
    view = Scene([job("a", 6, model="light")], cluster, SPREAD, now_s=10.0).view()

    assert placed(view) == (((0, 3), (1, 2), (2, 1)),)


def test_an_elastic_job_widens_into_what_is_free() -> None:
    view = Scene([job("a", 1, widths=(1, 2, 4))], "v100:4", now_s=10.0).view()

    assert placed(view) == (((0, 4),),)


def test_idle_gpus_go_to_placed_jobs_if_no_other_can_use_them() -> None:
    """The gang of seven leaves a GPU on each node; three such make a job of 7 one of 10, if it does not mind being spread."""
    jobs = [job("wide", 7, 400.0, widths=(7, 10)), job("gang", 7, 4e4)]
    free = np.array([1, 1, 1, 1])

    def wider(model: str) -> dict[int, Spot]:
        view = Scene([replace(spec, model=model) for spec in jobs], "v100:32x8", SPREAD, now_s=10.0).view()
        return Planner(view, latency_ratio(view)).widened({0: ((0, 7),), 1: ((1, 7),)}, free)

    assert wider("light") == {0: ((0, 8), (1, 1), (2, 1))}
    assert wider("heavy") == {}


def test_a_job_does_not_restart_for_a_gpu_that_gains_it_less_than_that_costs() -> None:
    spec = job("a", 7, 1e6, model="light", widths=(7, 8))
    held = {"a": ((0, 7),)}

    def wider(restart_s: float) -> dict[int, Spot]:
        scene = Scene([spec], "v100:8x8", SPREAD, held, now_s=1000.0, restart_s=restart_s)
        view = scene.view()
        return Planner(view, latency_ratio(view), restart=True).widened({0: ((0, 7),)}, np.array([1]))

    assert wider(restart_s=10.0) == {0: ((0, 8),)}
    assert wider(restart_s=500.0) == {}


# ---- plans -------------------------------------------------------------------------------------------------------


def test_if_the_solver_is_late_running_jobs_stay_and_the_queue_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job on the K80 would gain from moving to the V100, and the newcomer takes what is left."""
    monkeypatch.setattr(configurations, "STAGE_1", replace(configurations.STAGE_1, iterations=0))
    jobs = [job("old", model="fast", samples=1e6), job("new", model="fast", at=1.0)]
    scene = Scene(jobs, "k80:1,v100:1", TWO, {"old": ((0, 1),)}, {"old": 1.0}, now_s=10_000.0)

    answer = hops(scene.view(), None)[0]

    assert answer.spots == (((0, 1),), ((1, 1),))
    assert answer.answer.solver == GREEDY


def test_among_equals_the_one_that_has_waited_longest_runs() -> None:
    jobs = [job("a", 4, at=50.0), job("b", 4, at=0.0)]
    view = Scene(sorted(jobs, key=lambda spec: spec.arrival_s), "v100:4", now_s=100.0).view()

    assert placed(view) == (((0, 4),), ())


def test_plans_follow_one_another_until_nothing_more_can_be_placed() -> None:
    """Each width fills a part of what the last one left: 9 of 16 GPUs, then 4 of 7, 2 of 3 and the last one."""
    widths = (9, 9, 9, 9, 4, 4, 4, 4, 2, 2, 2, 2, 1, 1)
    jobs = [job(f"j{i:02d}", width, 1e4 * width, model="heavy", at=float(i)) for i, width in enumerate(widths)]
    view = Scene(jobs, "v100:32x16", SPREAD, now_s=100.0).view()

    def gpus(**options: int) -> int:
        return sum(count for spot in placed(view, **options) for _, count in spot)

    assert gpus() == 32
    assert gpus(plans=3) < 32


def test_priorities_can_be_changed() -> None:
    """The short job arrived last."""
    jobs = [job("long", 4, 40_000.0), job("short", 4, 400.0, at=90.0)]
    scene = Scene(jobs, "v100:4", now_s=100.0)

    chosen = {name: placed(scene.view(), priority=name)[1] != () for name in ("latency-ratio", "sjf", "srtf")}

    assert chosen == {"latency-ratio": True, "sjf": True, "srtf": True}
    assert placed(Scene(jobs, "v100:4", now_s=100_000.0).view(), priority="las")[0] == ((0, 4),)
    assert any(placed(scene.view(), priority="ftf"))


def test_lateness_also_counts_running_slower_than_expected() -> None:
    """500 s are expected over both types. After 400 s one job has waited all the time, and one has done half of its 800
    samples on the K80: it needs 250 s more, 650 of 500. For a job of unknown length this is unknown.
    """
    jobs = [job(id_, samples=800.0, model="fast") for id_ in ("waits", "slow")]
    unknown = replace(job("unknown", model="fast"), steps=None)
    held = {"slow": ((0, 1),), "unknown": ((0, 1),)}
    view = Scene([*jobs, unknown], "k80:2,v100:2", TWO, held, now_s=400.0).view()

    assert late_by(view).tolist() == pytest.approx([0.8, 0.3 - SLACK, 0.0])


def test_a_gang_that_is_late_is_served_before_an_elastic_job_that_is_less_so() -> None:
    """Speeds count by the smallest width: five GPUs are worth five to the elastic job, four are worth one to the gang."""
    jobs = [job("gang", 4, 400.0), job("elastic", 1, 300.0, at=60.0, widths=(1, 5))]
    view = Scene(jobs, "v100:5x8", now_s=100.0).view()
    assert latency_ratio(view).tolist() == pytest.approx([1.0, 0.4])

    assert placed_late(view) == (((0, 4),), ((0, 1),))
    assert placed_late(view, served=0.0) == ((), ((0, 5),))
    assert placed(view) == ((), ((0, 5),))


def test_a_move_has_to_gain_more_than_a_restart_takes_unless_restarts_are_ignored() -> None:
    """The job would be 1.2 times as fast elsewhere; it has run for 100 s and a restart takes 60 s."""
    speeds = profile({"m": {"k80": 1.0, "v100": 1.2}})
    scene = Scene(
        [job("a", model="m", samples=1e5)], "k80:1,v100:1", speeds, {"a": ((0, 1),)}, now_s=100.0, restart_s=60.0
    )

    assert restart_factor(scene.view()).tolist() == pytest.approx([100.0 / 160.0])
    assert placed_late(scene.view()) == (((0, 1),),)
    assert placed_late(scene.view(), restart=False) == (((1, 1),),)
    assert placed(scene.view()) == (((1, 1),),)


def test_a_job_that_must_stay_is_not_planned() -> None:
    jobs = [job("a", 2), job("b", 4, at=1.0), job("c", 2, at=2.0)]
    view = Scene(jobs, "v100:4", held={"a": ((0, 2),)}, since={"a": 3.0}, now_s=500.0).view()

    spots = placed(replace(view, pinned=np.array([True, False, False])))

    assert spots == (((0, 2),), (), ((0, 2),))


def test_the_window_is_extended_with_jobs_that_lose_less() -> None:
    sensitivity, least = np.array([2.0, 2.0, 1.0, 3.0, 1.1]), np.array([1, 1, 1, 1, 9])

    mended = adjust(np.array([0, 1]), np.arange(5), sensitivity, least, gpus=4)

    assert mended.tolist() == [0, 1, 2]


# ---- the solver --------------------------------------------------------------------------------------------------


def tiny(seed: int) -> View:
    random = stream(seed, "tiny instance")
    models = {f"m{m}": {"v100": float(random.uniform(1.0, 3.0)), "k80": 1.0} for m in range(4)}
    speeds = profile(models, {name: ModelFacts(spread=float(random.uniform(0.5, 1.0))) for name in models})
    size = int(random.integers(2, 6))
    cluster = build_cluster([NodeGroup(int(random.integers(1, 4)), gpu, size) for gpu in ("v100", "k80")])
    jobs = []
    for i in range(int(random.integers(3, 12))):
        widths = tuple(sorted({int(w) for w in random.integers(1, 2 * size, int(random.integers(1, 4)))}))
        samples = float(np.exp(random.normal(8.0, 1.0)))
        at = float(random.uniform(0.0, 3000.0))
        jobs.append(job(f"j{i}", widths[0], samples, at=at, model=f"m{i % 4}", widths=widths))
    jobs = [spec for spec in jobs if spec.gpus <= int(cluster.capacity.max())]
    return Scene(sorted(jobs, key=lambda spec: spec.arrival_s), cluster, speeds, now_s=3600.0).view()


def all_spots(view: View, planner: Planner, jobs: list[int]) -> SpotChoices:
    """Every way to place a job on the fewest nodes of one type, neighbours or not."""
    job_of, value, spots = [], [], []
    nodes_of = [np.flatnonzero(view.cluster.node_type == t).tolist() for t in range(len(view.capacity))]
    for j in jobs:
        for t, width in product(range(len(view.capacity)), view.width_sets[view.width_set[j]]):
            size = int(view.cluster.largest_node[t])
            full, rest = divmod(width, size)
            for chosen in combinations(nodes_of[t], full):
                if full + (rest > 0) > 1 and planner.sensitivity[j] > SIGMA and planner.least[j] <= size:
                    continue
                others = [((last, rest),) for last in nodes_of[t] if last not in chosen] if rest else [()]
                for other in others:
                    spot = tuple(sorted((*((node, size) for node in chosen), *other)))
                    rate = view.rate_at(j, t, width, len(spot))
                    job_of.append(j)
                    value.append(planner.value(j, rate, spot))
                    spots.append(spot)
    return SpotChoices(np.array(job_of), np.array(value), spots)


def first_plan(view: View) -> tuple[SpotPlan, float]:
    """The first plan, and the worth of the best possible plan."""
    prior = latency_ratio(view)
    planner, free = Planner(view, prior), free_for_planning(view, np.zeros(view.jobs, dtype=np.bool_))
    jobs = window(queue_order(prior), planner.least, int(free.sum()))
    best = exact(all_spots(view, planner, jobs.tolist()), free, NO_LIMIT, gap=1e-9)
    return planner.plan(jobs, free), best.value


def test_two_stages_come_close_to_the_exact_program() -> None:
    plans = [first_plan(tiny(seed)) for seed in range(60)]
    shares = [plan.value / best for plan, best in plans]

    assert np.mean(shares) >= 0.98
    assert min(shares) >= 0.95


def test_the_bound_is_never_below_the_best_plan() -> None:
    for seed in range(30):
        plan, best = first_plan(tiny(seed))

        assert plan.value <= best * (1 + 1e-6)
        assert best <= plan.bound * (1 + 1e-6)


def with_relative(view: View, relative: list[list[float]]) -> View:
    """The view with learnt speeds of jobs on nodes (j,n)."""
    return replace(view, gather=lambda name: np.array(relative) if name == "relative" else view.gather(name))


def test_inside_a_group_jobs_go_to_the_nodes_on_which_they_are_faster_themselves() -> None:
    """Node 1 is a little faster on average, so that it is filled first, and with the job that waits longer."""
    jobs = [job("a", 4, samples=100.0), job("b", 4, samples=200.0)]
    view = with_relative(Scene(jobs, "v100:8x4", now_s=10.0).view(), [[1.04, 1.0], [0.97, 1.03]])

    assert placed(view) == (((0, 4),), ((1, 4),))


def test_speeds_are_binned_wider_where_jobs_and_groups_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    view = with_relative(Scene([job("a"), job("b")], "v100:8x4").view(), [[1.0, 1.09]] * 2)

    assert len(np.unique(nodes_alike(view, view.relative)[0])) == 2
    monkeypatch.setattr(hops_planner, "MOST_CELLS", 2)
    assert len(np.unique(nodes_alike(view, view.relative)[0])) == 1


def test_a_solver_that_gives_up_is_replaced_by_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    view = tiny(7)
    monkeypatch.setattr(configurations, "STAGE_1", replace(configurations.STAGE_1, iterations=0))

    answer = hops(view, None)[0]

    assert answer.answer.solver == GREEDY
    assert any(answer.spots)


# ---- runs --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_job_starves_at_a_load_of_1_2() -> None:
    """48 hours of arrivals, then the cluster drains: all jobs end, and none waits out of proportion to its size class.

    The queue takes a day to form, and earlier jobs do not wait: relative to the median of all 48 hours, the largest ratio
    is 5 to 15 times as high. The median is therefore that of the second day, and the round in which a job arrives, which
    no order of the queue can avoid, does not count as waiting.
    """
    made = setup(overload(3, 48.0, gpus=128), "v100:64x8,k80:64x8", "hops-late", MIXED, restart_s=30.0, round_s=540.0)
    made = replace(made, settings=replace(made.settings, when=When.EVENTS))

    state = simulate(made).state
    summary = summarise(state)

    assert summary.jobs_finished == len(made.trace.jobs)
    jobs = slice(0, state.jobs)
    age_s = expected_run_s(state.total[jobs], state.best_rate[jobs], state.cluster.capacity)
    wait_s = state.end_s[jobs] - state.arrival_s[jobs] - state.run_s[jobs]
    beyond = np.maximum(wait_s - made.settings.round_s, 0.0) / age_s
    gpu_hours = age_s * state.width[jobs] / 3600
    crowded = state.arrival_s[jobs] > 24 * 3600
    for low, high in ((0, 1), (1, 10), (10, 50)):
        of_class = (gpu_hours >= low) & (gpu_hours < high)
        assert beyond[of_class].max() <= 3 * np.median((wait_s / age_s)[of_class & crowded])


MIXED = Profile(
    "mixed",
    tuple(speed(f"m{m}", gpu, rate) for m in range(3) for gpu, rate in (("v100", 1.5 + 0.5 * m), ("k80", 1.0))),
    {"m0": ModelFacts(spread=0.95), "m1": ModelFacts(spread=0.8), "m2": ModelFacts(spread=0.6)},
)


def overload(seed: int, hours: float, load: float = 1.2, gpus: int = 32) -> list[JobSpec]:
    """Log-uniform GPU-hours from 0.2 to 50 at the mean rate over types."""
    random = stream(seed, "overload")
    jobs: list[JobSpec] = []
    at_s = 0.0
    mean_hours = (50 - 0.2) / np.log(50 / 0.2)
    while at_s < hours * 3600:
        width = int(random.choice((1, 2, 4, 8)))
        work = 3600 * float(np.exp(random.uniform(np.log(0.2), np.log(50.0))))  # GPU-seconds
        model = int(random.integers(3))
        samples = work * (2.5 + 0.5 * model) / 2
        widths = tuple(w for w in (1, 2, 4, 8) if width // 2 <= w <= 2 * width)
        jobs.append(job(f"j{len(jobs):04d}", width, samples, at=at_s, model=f"m{model}", widths=widths))
        at_s += float(random.exponential(mean_hours * 3600 / (load * gpus)))
    return jobs


def test_the_paper_s_name_has_the_paper_s_program_and_ours_says_that_it_is_ours() -> None:
    printed, late = ROUND_POLICIES["hops"], ROUND_POLICIES["hops-late"]

    assert printed.level == late.level == "placement"
    assert printed.parameters["priority"] == "latency-ratio"
    assert not {"served", "restart", "widen"} & printed.parameters.keys()
    assert (printed.paper, late.paper) == ("Hops (SoCC 2024)", "ours, going beyond Hops (SoCC 2024)")
    with pytest.raises(InputError, match="priority is 'lateness'; wanted latency-ratio or"):
        printed.with_parameters({"priority": "lateness"})


def test_without_our_four_changes_the_late_form_is_the_paper_s() -> None:
    off = {"priority": "latency-ratio", "served": 0.0, "restart": False, "widen": False}
    views = [tiny(seed) for seed in range(20)]

    assert [placed_late(view, **off) for view in views] == [placed(view) for view in views]
    assert [placed_late(view) for view in views] != [placed(view) for view in views]


def test_lambda_is_2_for_finish_time_fairness_and_else_1_unless_it_is_set() -> None:
    for decide in (placed, placed_late):
        views = [tiny(seed) for seed in range(20)]
        for priority, power in (("ftf", 2.0), ("latency-ratio", 1.0), ("srtf", 1.0)):
            unset = [decide(view, priority=priority) for view in views]
            assert unset == [decide(view, priority=priority, power=power) for view in views]
        assert [decide(view, priority="ftf") for view in views] != [
            decide(view, priority="ftf", power=1.0) for view in views
        ]


def test_a_gpu_in_use_is_worth_a_little_more_than_an_idle_one() -> None:
    """With a second GPU the job makes half as many steps of twice the batch, less a thousandth, and still takes it."""
    flat = Profile("made up", (speed("m", "v100", 1.0), speed("m", "v100", 0.4995, gpus=2)))
    view = Scene([job("a", model="m", widths=(1, 2))], "v100:2", flat, now_s=10.0).view()

    assert placed(view) == (((0, 2),),)
    assert placed_late(view, widen=False) == (((0, 2),),)
