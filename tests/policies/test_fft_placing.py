"""FFT's rule for spread gangs, which holds for every policy: the cheapest to move is brought together first."""

from __future__ import annotations

import pytest

from building import Scene, job, speed
from fairlead.model.cluster import NodeGroup, build_cluster
from fairlead.policies import REGISTRY
from fairlead.rates.profile import ModelFacts, Profile
from fairlead.rounds.decide import Memory, decide

# Two GPUs on one node make twice as much as on two.
ROWS = tuple(row for m in "xy" for row in (speed(m, "v100", 1.0, gpus=2), speed(m, "v100", 0.5, gpus=2, nodes=2)))
FIVE_NODES = build_cluster([NodeGroup(5, "v100", 2)])


@pytest.mark.parametrize("cheap", ["x", "y"])
def test_of_two_spread_jobs_the_one_with_the_smaller_state_is_brought_together(cheap: str) -> None:
    """Both sit on two nodes, and one node is free."""
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

    decision, _ = decide(scene.view(), REGISTRY["fifo"], Memory())

    assert decision.start.tolist() == [0 if cheap == "x" else 1]
    assert decision.spots == (((4, 2),),)
