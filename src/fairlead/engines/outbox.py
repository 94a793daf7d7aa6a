"""Events that the loop has not folded yet, and the state as it will be once they are.

Several things can happen to a job between two folds (it is submitted, held and cancelled at once); each must see the
result of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fairlead.model.events import (
    Arrived,
    Cancelled,
    Event,
    Failed,
    Finished,
    Held,
    Lost,
    NodeAdded,
    NodeDown,
    NodeRemoved,
    NodeUp,
    NodeUsable,
    Refused,
    Released,
    Started,
    Stopped,
)
from fairlead.model.lifecycle import HAS_GPUS, TABLE, Phase, Step
from fairlead.rounds.state import State

_STEPS = {
    Started: Step.STARTED,
    Stopped: Step.STOPPED,
    Finished: Step.FINISHED,
    Failed: Step.FAILED,
    Lost: Step.LOST,
    Refused: Step.REFUSED,
    Cancelled: Step.CANCEL,
    Held: Step.HOLD,
    Released: Step.RELEASE,
}


class Outbox:
    """Pending events, with lookups that take them into account."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._events: list[Event] = []
        self._taken = False  # the loop has the events, and folds them before its next call
        self._forget()

    def _forget(self) -> None:
        self._arrivals: dict[str, int] = {}
        self._phase: dict[int, Phase] = {}
        self._node_up: dict[int, bool] = {}
        self._usable: dict[int, int] = {}
        self._joined: dict[str, int] = {}
        self._left: set[int] = set()
        self._kept: dict[int, float] = {}

    def clear_folded(self) -> None:
        """Forget the events that the loop took last, which are now part of the state."""
        if self._taken:
            self._taken = False
            self._forget()

    @property
    def waiting(self) -> bool:
        return bool(self._events)

    def take(self) -> list[Event]:
        events, self._events, self._taken = self._events, [], True
        return events

    def put(self, event: Event) -> None:
        self._events.append(event)
        if isinstance(event, NodeDown | NodeUp):
            self._node_up[event.node] = isinstance(event, NodeUp)
        if isinstance(event, NodeUsable):
            self._usable[event.node] = event.gpus
        if isinstance(event, NodeAdded):
            self._join(event)
        if isinstance(event, NodeRemoved):
            self._left.add(event.node)
        if isinstance(event, Stopped | Lost | Held | Finished):
            self._kept.update(zip(event.jobs.tolist(), event.samples.tolist(), strict=True))
        step = _STEPS.get(type(event))
        if step is not None:
            for j in event.jobs.tolist():  # type: ignore[union-attr]
                self._phase[j] = TABLE[self.phase(j), step]

    def arrived(self, event: Arrived) -> None:
        j = self._state.jobs + len(self._arrivals)
        self._arrivals[event.spec.id] = j
        self._phase[j] = Phase.WAITING
        self._events.append(event)

    def position(self, job: str) -> int | None:
        return self._state.position.get(job, self._arrivals.get(job))

    def phase(self, j: int) -> Phase:
        return self._phase[j] if j in self._phase else Phase(int(self._state.phase[j]))

    def safe(self, j: int) -> float:
        """Samples that the job had saved when it last left its GPUs."""
        if j in self._kept or j >= self._state.jobs:
            return self._kept.get(j, 0.0)
        return float(self._state.safe[j])

    def keep(self, j: int, samples: float) -> None:
        """Record the safe samples of a job for its next event."""
        self._kept[j] = samples

    def renumber(self, position: Mapping[int, int]) -> None:
        """Jobs have new positions; there are no pending events."""
        self._kept = {position[j]: samples for j, samples in self._kept.items() if j in position}
        self._phase = {position[j]: phase for j, phase in self._phase.items() if j in position}

    def _join(self, event: NodeAdded) -> None:
        nodes = self._state.cluster.nodes
        new = sum(n >= len(nodes) for n in self._joined.values())
        n = nodes.index(event.name) if event.name in nodes else self._joined.get(event.name, len(nodes) + new)
        self._joined[event.name] = n
        self._left.discard(n)
        self._node_up[n], self._usable[n] = True, event.gpus

    def node(self, name: str) -> int | None:
        """The position of a node that is part of the cluster, or will be."""
        cluster = self._state.cluster
        n = self._joined.get(name)
        if n is None and name in cluster.nodes:
            n = cluster.nodes.index(name)
            n = n if cluster.node_gpus[n] else None
        return None if n in self._left else n

    def node_up(self, node: int) -> bool:
        return self._node_up.get(node, bool(self._state.node_up[node]))

    def usable(self, node: int) -> int:
        return self._usable.get(node, int(self._state.nodes.usable[node]))

    def off_gpus(self) -> list[int]:
        """Jobs that hold GPUs in the state and no longer do once the pending events are folded."""
        return [
            j
            for j, phase in self._phase.items()
            if j < self._state.jobs and phase not in HAS_GPUS and int(self._state.phase[j]) in HAS_GPUS
        ]

    def jobs_on(self, node: int) -> list[int]:
        """Jobs that are on the node, or about to be."""
        held = np.flatnonzero(self._state.held_gpus[: self._state.jobs] > 0).tolist()
        return [
            j for j in held if self.phase(j) in HAS_GPUS and any(where == node for where, _ in self._state.spots[j])
        ]
