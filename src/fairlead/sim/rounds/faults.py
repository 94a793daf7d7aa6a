"""Node failures and repairs, at exponential times."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from fairlead.model.events import NodeDown, NodeUp
from fairlead.numerics.random import stream


@dataclass(frozen=True, order=True, slots=True)
class _Turn:
    time_s: float
    node: int
    up: bool


class Faults:
    """The next failure or repair; exponential times, one stream for the whole cluster, drawn in order of time."""

    def __init__(self, nodes: int, mtbf_s: float, repair_s: float, seed: int) -> None:
        self._mtbf_s, self._repair_s = mtbf_s, repair_s
        self._turns: list[_Turn] = []
        if mtbf_s > 0:
            self._random = stream(seed, "faults")
            first = self._random.exponential(mtbf_s, nodes).tolist()
            self._turns = [_Turn(time_s, node, up=False) for node, time_s in enumerate(first)]
        heapq.heapify(self._turns)

    @property
    def next_s(self) -> float:
        return self._turns[0].time_s if self._turns else math.inf

    def pop(self) -> NodeDown | NodeUp:
        turn = self._turns[0]
        stays_s = self._random.exponential(self._mtbf_s if turn.up else self._repair_s)
        heapq.heapreplace(self._turns, _Turn(turn.time_s + stays_s, turn.node, not turn.up))
        return NodeUp(turn.time_s, turn.node) if turn.up else NodeDown(turn.time_s, turn.node)
