"""Placing grants on nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from building import Scene, grants, job, speed
from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.cluster import NodeGroup, build_cluster
from fairlead.placement.pack import pack, strict, whole
from fairlead.placement.pool import Pool
from fairlead.rates.profile import ModelFacts, Profile


def packed(scene: Scene, wanted: dict[str, int], pinned: tuple[str, ...] = ()) -> dict[str, Spot]:
    """New spots by job, for grants of the only type by job."""
    view, names = scene.view(), [spec.id for spec in scene.jobs]
    wanted_grants = grants([[wanted.get(name, 0)] for name in names])
    return {
        names[j]: spot for j, spot in pack(view, wanted_grants, np.array([name in pinned for name in names])).items()
    }


def test_the_fullest_node_that_fits_is_taken() -> None:
    scene = Scene([job("old", 3), job("new")], "v100:8", held={"old": ((1, 3),)})

    assert packed(scene, {"old": 3, "new": 1}) == {"new": ((1, 1),)}


def test_a_gang_goes_on_one_node_where_one_has_room() -> None:
    scene = Scene([job("old", 1), job("new", 4)], "v100:8", held={"old": ((0, 1),)})

    assert packed(scene, {"old": 1, "new": 4}) == {"new": ((1, 4),)}


def test_a_gang_too_wide_for_a_node_takes_whole_nodes_and_fits_the_rest_best() -> None:
    scene = Scene([job("old", 3), job("new", 5)], "v100:12", held={"old": ((1, 3),)})

    assert packed(scene, {"old": 3, "new": 5}) == {"new": ((0, 4), (1, 1))}


def test_wide_gangs_go_first_so_that_narrow_ones_do_not_cut_up_their_nodes() -> None:
    scene = Scene([job("one"), job("two", 2), job("four", 4)], "v100:8")

    assert packed(scene, {"one": 1, "two": 2, "four": 4}) == {"four": ((0, 4),), "two": ((1, 2),), "one": ((1, 1),)}


def test_a_job_that_is_granted_what_it_holds_stays() -> None:
    scene = Scene([job("a", 2), job("b", 2)], "v100:8", held={"a": ((1, 2),), "b": ((0, 2),)})

    assert packed(scene, {"a": 2, "b": 2}) == {}


def test_a_job_without_a_grant_gives_its_gpus_back_and_they_are_used_at_once() -> None:
    scene = Scene([job("a", 4), job("b", 4)], "v100:4", held={"a": ((0, 4),)})

    assert packed(scene, {"b": 4}) == {"a": (), "b": ((0, 4),)}


def test_nodes_that_are_down_are_not_used() -> None:
    scene = Scene([job("a", 4)], "v100:8", down=[0])

    assert packed(scene, {"a": 4}) == {"a": ((1, 4),)}


SPREAD = {"even": ModelFacts(spread=0.5, restart_s=100.0)}
SPREAD_EVEN = Profile("made up", (speed("even", "v100", 1.0),), SPREAD)


def spread_scene(restart_s: float) -> Scene:
    return Scene([job("a", 2)], "v100:8", SPREAD_EVEN, held={"a": ((0, 1), (1, 1))}, restart_s=restart_s)


def test_a_spread_job_moves_together_where_that_pays_within_a_round() -> None:
    assert packed(spread_scene(restart_s=100.0), {"a": 2}) == {"a": ((0, 2),)}


def test_a_spread_job_stays_where_the_move_costs_more_than_a_round_earns() -> None:
    assert packed(spread_scene(restart_s=200.0), {"a": 2}) == {}


def test_a_pinned_spread_job_stays() -> None:
    assert packed(spread_scene(restart_s=0.0), {"a": 2}, pinned=("a",)) == {}


def test_a_spread_job_does_not_move_for_nothing() -> None:
    """On this model several nodes cost nothing."""
    scene = Scene([job("a", 2)], "v100:8", held={"a": ((0, 1), (1, 1))})

    assert packed(scene, {"a": 2}) == {}


def test_one_spread_job_may_move_where_another_does_not() -> None:
    """Several nodes cost `a` nothing and `b` half of its speed; there is room for one of them on the large node."""
    halves = {"hurt": ModelFacts(spread=0.5)}
    speeds = Profile("made up", (speed("even", "v100", 1.0), speed("hurt", "v100", 1.0)), halves)
    cluster = build_cluster([NodeGroup(1, "v100", 2), NodeGroup(4, "v100", 1)])
    held = {"a": ((1, 1), (2, 1)), "b": ((3, 1), (4, 1))}
    scene = Scene([job("a", 2), job("b", 2, model="hurt")], cluster, speeds, held=held)

    assert packed(scene, {"a": 2, "b": 2}) == {"b": ((0, 2),)}


def test_a_job_that_does_not_run_over_several_nodes_waits_for_one_with_room() -> None:
    only_together = Profile("made up", (speed("m", "v100", 1.0, gpus=2), speed("m", "v100", 0.0, gpus=2, nodes=2)))
    cluster = build_cluster([NodeGroup(1, "v100", 2), NodeGroup(2, "v100", 1)])
    scene = Scene([job("a", 2, model="m"), job("b", 2, model="m")], cluster, only_together, held={"a": ((0, 2),)})

    assert packed(scene, {"a": 2, "b": 2}) == {}


def test_strictly_placed_gangs_wait_for_as_few_nodes_as_they_need() -> None:
    """Both nodes have two GPUs left: four GPUs wait for one node, and a gang of six needs two nodes anyway."""
    held = {"a": ((0, 2),), "b": ((1, 2),)}
    halves = Scene([job("a", 2), job("b", 2), job("new", 4)], "v100:8", held=held)
    empty = Scene([job("new", 6)], "v100:8")
    nobody = np.zeros(3, dtype=np.bool_)

    assert packed(halves, {"a": 2, "b": 2, "new": 4}) == {"new": ((0, 2), (1, 2))}
    assert strict(halves.view(), grants([[2], [2], [4]]), nobody) == {}
    assert strict(empty.view(), grants([[6]]), nobody[:1]) == {0: ((0, 4), (1, 2))}


def test_a_gang_that_is_wider_than_a_node_has_whole_nodes_to_itself() -> None:
    scene = Scene([job("wide", 6), job("narrow", 2)], "v100:8")
    nobody = np.zeros(2, dtype=np.bool_)

    assert whole(scene.view(), grants([[6], [2]]), nobody) == {0: ((0, 4), (1, 2))}
    runs = replace(scene, held={"wide": ((0, 4), (1, 2))})
    assert whole(runs.view(), grants([[6], [2]]), nobody) == {}, "the job next to it waits, also in the next round"
    other = replace(scene, held={"narrow": ((0, 2),)})
    assert whole(other.view(), grants([[6], [2]]), nobody) == {}, "it waits for empty nodes"


def test_a_grant_that_mixes_types_becomes_one_spot() -> None:
    scene = Scene([job("a", 3, relaxed=True)], "v100:4,k80:4")

    assert pack(scene.view(), grants([[2, 1]]), np.array([False])) == {0: ((0, 2), (1, 1))}


def test_a_job_that_holds_mixed_types_and_is_granted_the_same_stays() -> None:
    scene = Scene([job("a", 3, relaxed=True)], "v100:4,k80:4", held={"a": ((0, 2), (1, 1))})

    assert pack(scene.view(), grants([[2, 1]]), np.array([False])) == {}


def test_a_spot_on_fewer_nodes_is_taken_and_one_on_as_many_is_not() -> None:
    pool = Pool(build_cluster([NodeGroup(3, "v100", 1)]), np.ones(3, dtype=np.int64))

    assert pool.place_on_fewer(0, 2, 2) == NOWHERE
    assert pool.free == [1, 1, 1]
    assert pool.place_on_fewer(0, 2, 3) == ((0, 1), (1, 1))
    assert pool.free == [0, 0, 1]
