"""Grants that mix types: which jobs may have one, its rate, when it is kept, and that every policy handles it."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from building import PLUG_INS, ROUND_POLICIES, THREE, Scene, granted, grants, job, profile, run_checked, setup, speed
from fairlead.model.allocation import Grants, Level
from fairlead.model.cluster import parse_short_form
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.view import MIXED_TYPES, View
from fairlead.placement.moves import drop_idle_moves
from fairlead.placement.pack import pack
from fairlead.policies import find_round_policy
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import ModelFacts, Profile
from fairlead.rates.three_layer import ThreeLayer
from fairlead.rounds.decide import Memory, decide
from fairlead.sim.truth import Truth, World
from fairlead.studies.runs.simulate import simulate

MIXED = next(policy for policy in PLUG_INS if policy.name == "plug-in-mixed")
HELD_MIX = {"a": ((0, 1), (1, 1))}


def always(table: list[list[int]]) -> Policy:
    return Policy("always", "", "", Level.GRANTS, lambda view, memory: (grants(table), memory))


def test_a_mix_runs_at_the_rate_of_the_best_split(tmp_path: Path) -> None:
    """`fast` runs at 4, 2 and 1 samples/s per GPU: on a V100 and two P100 three tasks take two, one and none."""
    made = setup([job("a", 3, 12000.0, model="fast", relaxed=True)], "v100:1,p100:2", always([[1, 2]]))

    result, checked = run_checked(made, tmp_path / "journal")

    assert checked.jobs["a"].starts == 1
    assert result.state.end_s[0] == 12000.0 / 6.0  # two tasks on the V100 as on a gang of three at 4 each, halved


def test_hidden_speeds_of_servers_move_the_split() -> None:
    cluster = parse_short_form("v100:1,p100:1")
    estimator = TableEstimator(THREE, cluster)

    def rate(low: float, high: float) -> float:
        truth = Truth([job("a", 2, model="fast")], cluster, estimator, World(server_factor=(low, high), seed=1))
        return truth.rate(0, ((0, 1), (1, 1)))

    assert rate(1.0, 1.0) == 4.0
    assert rate(0.5, 0.5) == 2.0
    assert 2.0 < rate(0.5, 1.0) < 4.0


@pytest.mark.parametrize(
    ("spec", "cluster"),
    [
        (job("a", 2), "v100:2,k80:2"),  # does not allow it
        (job("a", 2, model="v", relaxed=True), "v100:2,k80:2"),  # has no speed there
        (job("a", 2, relaxed=True, types=("v100", "p100")), "v100:2,k80:2"),
    ],
)
def test_a_mix_that_the_job_does_not_allow_is_a_bug(spec: object, cluster: str) -> None:
    scene = Scene([spec], cluster)  # type: ignore[list-item]

    with pytest.raises(BrokenInvariantError, match="mix of v100, k80"):
        decide(scene.view(), always([[1, 1]]), Memory())


def test_a_type_with_few_gpus_may_take_part() -> None:
    view = Scene([job("a", 4, relaxed=True), job("b", 4), job("c", 1, relaxed=True)], "v100:3,k80:4").view()

    assert view.mixable.tolist() == [[True, True], [False, False], [False, False]]
    assert view.rate[0].tolist() == [0.0, 4.0]


def test_a_mix_stays_if_leaving_it_does_not_pay() -> None:
    scene = Scene([job("a", 2, relaxed=True)], "k80:2,v100:2", held=HELD_MIX, restart_s=40.0)
    view = scene.view()

    assert view.held_type.tolist() == [MIXED_TYPES]
    assert granted(view, drop_idle_moves(view, grants([[0, 2]]))) == [[1, 1]]


def test_a_mix_is_left_for_something_better() -> None:
    scene = Scene([job("a", 2, model="fast", relaxed=True)], "k80:2,v100:2", held=HELD_MIX, restart_s=40.0)
    view = scene.view()

    assert granted(view, drop_idle_moves(view, grants([[0, 2]]))) == [[0, 2]]
    # The other way there is nothing to gain, and the old GPUs are free.
    pure = Scene([job("a", 2, model="fast", relaxed=True)], "k80:2,v100:2", held={"a": ((1, 2),)}).view()
    assert granted(pure, drop_idle_moves(pure, grants([[1, 1]]))) == [[0, 2]]


def test_a_mix_is_dropped_where_its_gpus_are_wanted() -> None:
    scene = Scene([job("a", 2, relaxed=True), job("b", 1)], "k80:2,v100:1", held=HELD_MIX)
    view = scene.view()

    assert granted(view, drop_idle_moves(view, grants([[2, 0], [0, 1]]))) == [[2, 0], [0, 1]]


def test_a_mix_that_does_not_run_spread_is_not_placed() -> None:
    rows = [speed("m", gpu, 1.0, gpus=3, nodes=nodes) for gpu in ("v100", "k80") for nodes in (1, 2)]
    speeds = Profile("made up", (*rows, *(speed("m", gpu, 0.0, gpus=3, nodes=3) for gpu in ("v100", "k80"))))
    scene = Scene([job("a", 3, model="m", relaxed=True)], "v100:2x1,k80:2", speeds)
    view = scene.view()

    assert pack(view, grants([[2, 1]]), np.zeros(1, dtype=np.bool_)) == {0: ()}
    assert pack(view, grants([[1, 2]]), np.zeros(1, dtype=np.bool_)) == {0: ((0, 1), (2, 2))}


def test_a_pinned_mix_is_kept_and_others_fit_in_beside_it(tmp_path: Path) -> None:
    jobs = [job("a", 3, 3000.0, relaxed=True), job("b", 1, 100.0, at=100.0)]

    _, checked = run_checked(setup(jobs, "v100:2,k80:2", MIXED, restart_s=30.0, when="events"), tmp_path / "journal")

    assert checked.jobs["a"].starts == checked.jobs["b"].starts == 1
    assert checked.causes["event"] == 1


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
def test_every_policy_handles_a_job_that_holds_a_mix(policy: Policy) -> None:
    jobs = [job("a", 2, model="fast", relaxed=True), job("b", 1), job("c", 2, relaxed=True)]

    for restart_s in (0.0, 1e5):
        view = Scene(jobs, "k80:2,v100:2", held=HELD_MIX, now_s=360.0, restart_s=restart_s).view(policy=policy)
        decision, _ = decide(view, policy, Memory())
        assert (decision.stop.size == 0) or restart_s == 0.0


def test_what_is_learnt_about_a_mix_is_learnt_about_each_of_its_types() -> None:
    cluster = parse_short_form("v100:2,p100:2")
    learner = ThreeLayer(TableEstimator(THREE, cluster), cluster)
    mix = ((0, 1), (1, 1))

    assert learner.predict(7, "fast", mix) == 4.0
    learner.observe(7, "fast", mix, 2.0)

    assert learner.spread(np.array([7])).tolist() == [[0.5, 0.5]]
    assert learner.predict(7, "fast", mix) == 2.0


# ---- the registered policy that mixes --------------------------------------------------------------------------------


def asked(view: View) -> list[list[int]]:
    grants, _ = find_round_policy("hlas-rounds").allocate(view, None)
    assert isinstance(grants, Grants)
    return granted(view, grants)


def test_a_relaxed_job_takes_what_is_free_where_a_gang_would_wait() -> None:
    jobs = [job("a", 3), job("b", 2, relaxed=True), job("c", 2)]

    assert asked(Scene(jobs, "v100:4,k80:1").view()) == [[3, 0], [1, 1], [0, 0]]


def test_one_type_is_taken_where_that_is_faster() -> None:
    """A mix in which every GPU works is as fast as its slowest: better than two K80, no better than two P100."""
    fast = job("a", 2, model="fast", relaxed=True)

    assert asked(Scene([fast], "v100:1,p100:1,k80:2").view()) == [[1, 1, 0]]
    assert asked(Scene([fast], "v100:1,p100:2,k80:2").view()) == [[0, 2, 0]]


def test_a_mix_in_which_a_gpu_would_idle_comes_after_jobs_that_can_use_it() -> None:
    speeds = profile({"steep": {"v100": 9.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}})
    first, second = job("a", 2, model="steep", relaxed=True), job("b", 1)

    assert asked(Scene([first, second], "v100:1,k80:1", speeds).view()) == [[0, 0], [1, 0]]
    assert asked(Scene([first], "v100:1,k80:1", speeds).view()) == [[1, 1]]


def test_service_on_a_slow_type_counts_for_less() -> None:
    """Both had 3600 GPU-seconds, `b` on a GPU of a quarter of its speed: it is still in an earlier queue."""
    scene = Scene(
        [job("a", model="fast"), job("b", model="fast"), job("c", model="fast")],
        "v100:1,k80:1",
        held={"a": ((0, 1),), "b": ((1, 1),)},
        now_s=3600.0,
    )
    view = scene.view()

    _, memory = find_round_policy("hlas-rounds").allocate(view, None)

    assert memory.reference_s.tolist() == [3600.0, 900.0, 0.0]


def test_relaxed_jobs_finish_earlier_on_a_cluster_of_small_types() -> None:
    def ends(*, relaxed: bool) -> float:
        jobs = [job(f"j{i}", 3, 3000.0, at=10.0 * i, relaxed=relaxed) for i in range(6)]
        state = simulate(setup(jobs, "v100:4,p100:4,k80:4", "hlas-rounds", facts_free())).state
        return float(state.end_s[: state.jobs].mean())

    assert ends(relaxed=True) < 0.9 * ends(relaxed=False)


def facts_free() -> Profile:
    return Profile("made up", THREE.speeds, {"even": ModelFacts(spread=1.0)})
