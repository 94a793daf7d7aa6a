"""The newest start estimates, in a file that the API reads. It may be removed at any time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fairlead.service.store.directory import StateDirectory

KIND = "estimates/1"


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a waiting job will start, in seconds since 1970; null: later than was simulated."""

    job: str
    tenant: str
    earliest_s: float | None
    latest_s: float | None


@dataclass(frozen=True, slots=True)
class StartEstimates:
    """The estimates of all waiting jobs, made from the state at `time_s`."""

    time_s: float
    until_s: float  # the simulations ended here
    policy: str
    chance: float  # that a start is in its range
    cpu_s: float  # what they cost
    estimates: tuple[StartEstimate, ...]
    reason: str | None = None  # why there are none
    held: int = 0  # of the estimates of the last week that could be checked, how many held
    checked: int = 0
    experience: Mapping[str, Any] = field(default_factory=dict)  # what past estimates have shown, as JSON values


def write_estimates(directory: StateDirectory, estimates: StartEstimates) -> None:
    draft = directory.estimates_file.with_suffix(".new")
    draft.write_text(json.dumps({"fairlead": KIND, **asdict(estimates)}), encoding="utf-8")
    draft.rename(directory.estimates_file)


def read_estimates(directory: StateDirectory) -> StartEstimates | None:
    """The newest estimates; None if there are none, or none that can be read."""
    try:
        document = json.loads(directory.estimates_file.read_text(encoding="utf-8"))
        if document.pop("fairlead") != KIND:
            return None
        rows = tuple(StartEstimate(**row) for row in document.pop("estimates"))
        return StartEstimates(**document, estimates=rows)
    except (OSError, ValueError, KeyError, TypeError):
        return None
