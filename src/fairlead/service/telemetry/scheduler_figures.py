"""What the scheduler process measures about itself, and reports to the API process with its decisions.

Counts begin again with each scheduler process, as Prometheus expects of a process that was restarted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fairlead.engines.leases import Key, Lease, Look
from fairlead.engines.runner import AdoptsLeases, Capabilities, KeepsStandbys, LaunchError, Runner
from fairlead.model.histogram import FAST_S, Histogram, histogram_from_json

_T = TypeVar("_T")
CALLS = ("launch", "ask_to_stop", "kill", "look", "revoke")
MEASURED_S = 2.0  # between two reports of measurements while nothing is decided
FALLIBLE = ("launch", "ask_to_stop", "revoke")  # calls that report whether they had an effect


@dataclass(slots=True)
class Measurements:
    """Durations of decisions and commits, and durations and failures of calls of the engine."""

    decisions: Histogram = field(default_factory=lambda: Histogram(FAST_S))
    commits: Histogram = field(default_factory=lambda: Histogram(FAST_S))
    calls: dict[str, Histogram] = field(default_factory=lambda: {call: Histogram(FAST_S) for call in CALLS})
    errors: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FALLIBLE, 0))

    def looked(self, took_s: float, answered: bool) -> None:
        """Count a look at Slurm of a service that only watches it."""
        self.calls["look"].observe(took_s)
        self.errors["look"] += not answered

    def to_json(self) -> dict[str, Any]:
        return {
            "decisions": self.decisions.to_json(),
            "commits": self.commits.to_json(),
            "calls": {call: one.to_json() for call, one in self.calls.items()},
            "errors": dict(self.errors),
        }


def watching_measurements(commits: Histogram) -> Measurements:
    """Those of a service that only watches: looks are all that it asks of Slurm."""
    return Measurements(commits=commits, calls={"look": Histogram(FAST_S)}, errors={"look": 0})


def measurements_from_json(document: dict[str, Any]) -> Measurements:
    return Measurements(
        histogram_from_json(document["decisions"]),
        histogram_from_json(document["commits"]),
        {call: histogram_from_json(one) for call, one in document["calls"].items()},
        dict(document["errors"]),
    )


@dataclass(frozen=True, slots=True)
class SchedulerFigures:
    """The scheduler process as metrics show it."""

    ready: bool = True
    restarts: int = 0
    decision_age_s: float | None = None
    decision_overdue: bool = False
    policy_failed: bool = False
    measurements: Measurements = field(default_factory=Measurements)


class MeasuredRunner:
    """A runner whose calls are measured. It can do what the runner inside can, also what only some can."""

    def __init__(self, runner: Runner, measurements: Measurements) -> None:
        self._runner, self._measurements = runner, measurements
        self.recall: Callable[[Key], Lease | None] = runner.recall
        self.jobs: Callable[[], Collection[str]] = runner.jobs
        self.numbers: Callable[[str], Sequence[int]] = runner.numbers
        if isinstance(runner, KeepsStandbys):
            self.warm_figures = runner.warm_figures
        if isinstance(runner, AdoptsLeases):
            self.adopt = runner.adopt

    @property
    def capabilities(self) -> Capabilities:
        return self._runner.capabilities

    def launch(self, lease: Lease) -> None:
        try:
            self._measure("launch", lambda: self._runner.launch(lease))
        except LaunchError:
            self._measurements.errors["launch"] += 1
            raise

    def ask_to_stop(self, lease: Lease) -> bool:
        reached = self._measure("ask_to_stop", lambda: self._runner.ask_to_stop(lease))
        self._measurements.errors["ask_to_stop"] += not reached
        return reached

    def kill(self, lease: Lease) -> None:
        self._measure("kill", lambda: self._runner.kill(lease))

    def look(self, leases: Sequence[Key]) -> Look:
        return self._measure("look", lambda: self._runner.look(leases))

    def revoke(self, key: Key) -> bool:
        revoked = self._measure("revoke", lambda: self._runner.revoke(key))
        self._measurements.errors["revoke"] += not revoked
        return revoked

    def _measure(self, call: str, make: Callable[[], _T]) -> _T:
        began_s = time.monotonic()
        try:
            return make()
        finally:
            self._measurements.calls[call].observe(time.monotonic() - began_s)
