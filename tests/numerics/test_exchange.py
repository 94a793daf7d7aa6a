"""The exchange of bundles of jobs between the nodes of a group."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.configurations import Groups, group_nodes
from fairlead.numerics.exchange import exchange
from fairlead.numerics.random import stream

Instance = tuple[dict[int, Spot], Groups, dict[int, Spot], FloatArray, IntArray]


def made(seed: int) -> Instance:
    """Up to six nodes of two kinds with four GPUs, and jobs packed first fit; some jobs stay where they are now."""
    random = stream(seed, "exchange")
    nodes = int(random.integers(2, 7))
    free: IntArray = np.full(nodes, 4)
    groups = group_nodes(random.integers(0, 2, nodes), free, np.arange(nodes))
    speed = random.uniform(0.7, 1.1, (12, nodes))  # j,n
    left = free.copy()
    spots: dict[int, Spot] = {}
    present: dict[int, Spot] = {}
    for job in range(12):
        gpus, node = int(random.integers(1, 4)), int(random.integers(0, nodes))
        if left[node] < gpus:
            continue
        spots[job] = ((node, gpus),)
        left[node] -= gpus
        if random.random() < 0.15:
            present[job] = spots[job]
    if nodes > 2 and left[0] and left[1]:
        spots[12] = ((0, 1), (1, 1))
    return spots, groups, present, np.vstack((speed, np.ones(nodes))), free


def value_of(spots: dict[int, Spot], speed: FloatArray) -> float:
    return sum(gpus * float(speed[job, spot[0][0]]) for job, spot in spots.items() for _, gpus in spot[:1])


def best_by_trying(spots: dict[int, Spot], groups: Groups, present: dict[int, Spot], speed: FloatArray) -> float:
    """The best value over every permutation of the movable nodes of every group."""
    held = {n for job, spot in spots.items() if len(spot) > 1 or present.get(job) == spot for n, _ in spot}
    total = 0.0
    for nodes in groups.nodes:
        open_ = [node for node in nodes if node not in held]
        inside = {job: spot for job, spot in spots.items() if spot[0][0] in open_ and len(spot) == 1}
        best = 0.0
        for order in permutations(open_):
            to = dict(zip(open_, order, strict=True))
            best = max(best, value_of({job: ((to[s[0][0]], s[0][1]),) for job, s in inside.items()}, speed))
        total += best
    fixed = {job: spot for job, spot in spots.items() if any(node in held for node, _ in spot)}
    return total + value_of(fixed, speed)


@pytest.mark.parametrize("seed", range(40))
def test_bundles_go_where_they_are_worth_most(seed: int) -> None:
    spots, groups, present, speed, free = made(seed)

    changed, gain = exchange(spots, groups, present, lambda job, gpus, nodes: gpus * speed[job, nodes])

    before, after = value_of(spots, speed), value_of(changed, speed)
    assert after == pytest.approx(best_by_trying(spots, groups, present, speed))
    assert gain == pytest.approx(after - before)
    assert gain >= 0
    used = np.zeros(len(free), dtype=np.int64)
    for spot in changed.values():
        for node, gpus in spot:
            used[node] += gpus
    assert (used <= free).all()


@pytest.mark.parametrize("seed", range(40))
def test_jobs_that_stay_or_are_spread_do_not_move_and_bundles_stay_together_in_their_group(seed: int) -> None:
    spots, groups, present, speed, _ = made(seed)

    changed, _ = exchange(spots, groups, present, lambda job, gpus, nodes: gpus * speed[job, nodes])

    assert changed.keys() == spots.keys()
    to: dict[int, set[int]] = {}
    for job, spot in spots.items():
        if len(spot) > 1 or job in present:
            assert changed[job] == spot
        if len(spot) == 1:
            to.setdefault(spot[0][0], set()).add(changed[job][0][0])
    for node, new in to.items():
        (only,) = new
        assert groups.of[node] == groups.of[only]


def test_nothing_moves_where_nothing_is_gained() -> None:
    spots, groups, *_ = made(3)

    changed, gain = exchange(spots, groups, {}, lambda job, gpus, nodes: np.ones(len(nodes)))

    assert (changed, gain) == (spots, 0.0)
