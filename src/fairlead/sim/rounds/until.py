"""An engine that ends at a fixed time."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.model.decision import Decision
from fairlead.model.events import Event
from fairlead.rounds.loop import Engine


@dataclass(frozen=True, slots=True)
class Until:
    """Runs an engine up to and including `end_s`."""

    engine: Engine
    end_s: float

    def now(self) -> float:
        return self.engine.now()

    def wait(self, until_s: float) -> list[Event] | None:
        if until_s <= self.end_s:
            return self.engine.wait(until_s)
        return self.engine.wait(self.end_s) or None

    def apply(self, decision: Decision) -> None:
        self.engine.apply(decision)
