"""An engine that first reports events from outside the simulated world."""

from __future__ import annotations

from fairlead.model.decision import Decision
from fairlead.model.events import Event
from fairlead.rounds.loop import Engine


class WithNews:
    """Reports `news`, events of the present instant, before those of an engine."""

    def __init__(self, engine: Engine, news: tuple[Event, ...]) -> None:
        self._engine, self._news = engine, list(news)

    def now(self) -> float:
        return self._engine.now()

    def wait(self, until_s: float) -> list[Event] | None:
        if self._news:
            news, self._news = self._news, []
            return news
        return self._engine.wait(until_s)

    def apply(self, decision: Decision) -> None:
        self._engine.apply(decision)
