"""An engine that ends at a time, whatever would come later."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.model.decision import Decision
from fairlead.model.events import Event
from fairlead.rounds.loop import Engine


@dataclass(frozen=True, slots=True)
class Until:
    """All that happens and is decided up to `end_s` takes place, that instant included."""

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
