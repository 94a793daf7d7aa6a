"""The rate of a spot: how fast a job runs on these GPUs of these nodes.

The simulator's truth, the estimator, placement, moves, engines and policies all use this function. If another property
of the nodes should matter (for example a shared network switch), only this file changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray
from fairlead.rates.relaxed import mixed_rate

# (type, GPUs, nodes) -> samples per second of the job as a gang of one type; 0: it does not run in this way
GangRate = Callable[[int, int, int], float]


def spot_rate(
    gang: GangRate,
    spot: Spot,
    type_of: Sequence[int],
    node_speed: Sequence[float] | FloatArray | None = None,
    spread_speed: FloatArray | None = None,
) -> float:
    """Samples per second of the whole job; 0 if it cannot run on this spot, or if the spot is empty.

        one type      gang(t, G, N) * min_n speed_n                       N nodes of type t with G GPUs between them
        several       the best split of a step's tasks over the GPUs, each with gang(t, G, N) * speed_n

    `type_of` has the type of every node. `node_speed` (n) is the speed of a node relative to its type, where it is known:
    the slowest node sets the pace. `spread_speed` (t) is a factor for jobs on several nodes; the smallest among the
    spot's types counts.
    """
    nodes = len(spot)
    if nodes == 1:
        node, gpus = spot[0]
        rate = gang(type_of[node], gpus, 1)
        return rate if node_speed is None else rate * float(node_speed[node])
    if not spot:
        return 0.0
    gpus = sum(count for _, count in spot)
    types = {type_of[node] for node, _ in spot}
    spread = 1.0 if spread_speed is None else min(float(spread_speed[t]) for t in types)
    if len(types) == 1:
        slowest = 1.0 if node_speed is None else min(float(node_speed[node]) for node, _ in spot)
        return gang(types.pop(), gpus, nodes) * (slowest * spread)
    by_type = {t: gang(t, gpus, nodes) for t in types}
    parts = [
        (by_type[type_of[node]] * (1.0 if node_speed is None else float(node_speed[node])), count)
        for node, count in spot
    ]
    return mixed_rate(parts) * spread
