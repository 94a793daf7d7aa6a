"""FFT's rules for placing gangs, which hold for every policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from building import Scene, job, speed
from fairlead.model.cluster import NodeGroup, build_cluster
from fairlead.policies import ROUND_POLICIES
from fairlead.rates.profile import ModelFacts, Profile
from fairlead.rounds.decide import Memory, decide

# Two GPUs are twice as fast on one node as on two.
ROWS = tuple(row for m in "xy" for row in (speed(m, "v100", 1.0, gpus=2), speed(m, "v100", 0.5, gpus=2, nodes=2)))
SPEEDS = Profile("made up", ROWS)
TWO_NODES = build_cluster([NodeGroup(2, "v100", 2)])
FIVE_NODES = build_cluster([NodeGroup(5, "v100", 2)])


@pytest.mark.parametrize("cheap", ["x", "y"])
def test_of_two_spread_jobs_the_one_with_the_smaller_state_is_brought_together(cheap: str) -> None:
    """Both are on two nodes, and one node is free."""
    dear = "y" if cheap == "x" else "x"
    speeds = Profile("made up", ROWS, {cheap: ModelFacts(restart_s=10.0), dear: ModelFacts(restart_s=60.0)})
    scene = Scene(
        [
            job("a", 2, 1e6, model="x"),
            job("b", 2, 1e6, model="y"),
            *(job(f"s{n}", 1, 1e6, model="x") for n in range(4)),
        ],
        FIVE_NODES,
        speeds,
        held={
            "a": ((0, 1), (1, 1)),
            "b": ((2, 1), (3, 1)),
            **{f"s{n}": ((n, 1),) for n in range(4)},
        },
        now_s=360.0,
    )

    decision, _ = decide(scene.view(), ROUND_POLICIES["fifo"], Memory())

    assert decision.start.tolist() == [0 if cheap == "x" else 1]
    assert decision.spots == (((4, 2),),)


def test_a_gang_that_loses_nothing_by_being_spread_leaves_whole_nodes_to_one_that_does() -> None:
    """A whole node is free, and one GPU on each of two more. The pipeline, first in the queue, takes these two."""
    rows = (*ROWS, speed("pipeline", "v100", 1.0, gpus=2), speed("pipeline", "v100", 1.0, gpus=2, nodes=2))
    scene = Scene(
        [
            job("p", 2, 1e6, model="pipeline"),
            job("d", 2, 1e6, model="x"),
            *(job(f"s{n}", 1, 1e6, model="x") for n in "12"),
        ],
        build_cluster([NodeGroup(3, "v100", 2)]),
        Profile("made up", rows),
        held={"s1": ((1, 1),), "s2": ((2, 1),)},
        now_s=360.0,
    )

    decision, _ = decide(scene.view(), ROUND_POLICIES["fifo"], Memory())

    assert dict(zip(decision.start.tolist(), decision.spots, strict=True)) == {0: ((1, 1), (2, 1)), 1: ((0, 2),)}


def test_a_job_comes_back_to_the_node_that_it_last_ran_on() -> None:
    """`a` ran on the second node and was pre-empted, and both nodes are free now."""
    view = replace(Scene([job("a", 2, 1e6, model="x")], TWO_NODES, SPEEDS).view(), last_spot=lambda j: ((1, 2),))

    decision, _ = decide(view, ROUND_POLICIES["fifo"], Memory())

    assert decision.spots == (((1, 2),),)
