"""An engine that ends at a fixed time, or earlier if nobody wants to know more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fairlead.model.decision import Decision
from fairlead.model.events import Event
from fairlead.rounds.loop import Engine


@dataclass(frozen=True, slots=True)
class Until:
    """Runs an engine up to and including `end_s`, or until `is_enough` before that."""

    engine: Engine
    end_s: float = math.inf
    is_enough: Callable[[], bool] | None = None

    def now(self) -> float:
        return self.engine.now()

    def wait(self, until_s: float) -> list[Event] | None:
        if self.is_enough is not None and self.is_enough():
            return None
        if until_s <= self.end_s:
            return self.engine.wait(until_s)
        return self.engine.wait(self.end_s) or None

    def apply(self, decision: Decision) -> None:
        self.engine.apply(decision)
