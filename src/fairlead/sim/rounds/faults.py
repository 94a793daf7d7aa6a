"""Node failures and repairs, at exponential times."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from fairlead.model.arrays import BoolArray
from fairlead.model.events import NodeDown, NodeUp
from fairlead.numerics.random import stream


@dataclass(frozen=True, order=True, slots=True)
class _Turn:
    time_s: float
    node: int
    up: bool


class Faults:
    """Failures and repairs at exponential times, from one stream for the whole cluster, drawn in order of time.

    All nodes are up at `since_s`. The draws do not depend on jobs, so a later time of the same world is reached by drawing
    up to it.
    """

    def __init__(self, nodes: int, mtbf_s: float, repair_s: float, seed: int, since_s: float = 0.0) -> None:
        self._mtbf_s, self._repair_s, self._seed = mtbf_s, repair_s, seed
        self._turns: list[_Turn] = []
        if mtbf_s > 0:
            self._random = stream(seed, "faults")
            first = self._random.exponential(mtbf_s, nodes).tolist()
            self._turns = [_Turn(since_s + after_s, node, up=False) for node, after_s in enumerate(first)]
        heapq.heapify(self._turns)

    @property
    def next_s(self) -> float:
        return self._turns[0].time_s if self._turns else math.inf

    def pop(self) -> NodeDown | NodeUp:
        turn = self._turns[0]
        stays_s = self._random.exponential(self._mtbf_s if turn.up else self._repair_s)
        heapq.heapreplace(self._turns, _Turn(turn.time_s + stays_s, turn.node, not turn.up))
        return NodeUp(turn.time_s, turn.node) if turn.up else NodeDown(turn.time_s, turn.node)

    def join(self, node: int, now_s: float) -> None:
        if self._mtbf_s > 0:
            heapq.heappush(self._turns, _Turn(now_s + self._random.exponential(self._mtbf_s), node, up=False))

    def leave(self, node: int) -> None:
        self._turns = [turn for turn in self._turns if turn.node != node]
        heapq.heapify(self._turns)

    def skip_to(self, now_s: float, node_up: BoolArray) -> None:
        """Skip all turns up to `now_s`; `node_up` (n) shows which turns at exactly that time have happened.

        If the condition of a node differs from the draws, because the state is from another world, the node turns after a
        time from a separate stream. Exponential times have no memory, so such a node behaves like any other.
        """
        while self._turns and self._is_over(self._turns[0], now_s, node_up):
            self.pop()
        random = stream(self._seed, "faults of a state")
        for place, turn in sorted(enumerate(self._turns), key=lambda item: item[1].node):
            up = bool(node_up[turn.node])
            if turn.up == up:
                stays_s = random.exponential(self._mtbf_s if up else self._repair_s)
                self._turns[place] = _Turn(now_s + stays_s, turn.node, not up)
        heapq.heapify(self._turns)

    @staticmethod
    def _is_over(turn: _Turn, now_s: float, node_up: BoolArray) -> bool:
        return turn.time_s < now_s or (turn.time_s == now_s and bool(node_up[turn.node]) == turn.up)
