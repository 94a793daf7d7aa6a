"""The state that the parts of the live engine share: leases, decided starts, requests of users, nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fairlead.engines.fleet import Fleet
from fairlead.engines.outbox import Outbox
from fairlead.engines.requests import Cancel, Command, Hold, Release
from fairlead.engines.runner import Runner
from fairlead.model.allocation import Spot
from fairlead.rounds.state import State

Wish = type[Hold] | type[Cancel] | type[Release]  # Release: hold, then release


@dataclass(frozen=True, slots=True)
class Start:
    """A decided start that has not been launched yet."""

    number: int
    spot: Spot


@dataclass(slots=True)
class Situation:
    """The working state of a live engine."""

    state: State
    runner: Runner
    command_of: Callable[[str], Command]
    outbox: Outbox
    fleet: Fleet
    now_s: float
    drained: set[str]  # nodes that an operator took out of service
    silent: set[str]  # nodes that do not answer
    learns_restarts: bool = True  # report what starts cost
    log_bytes: Callable[[str], int | None] = lambda tenant: None  # limit of a lease's log, by tenant
    lease_floor: Callable[[str], int] = lambda job: 0  # the number after which a job's leases are counted
    trouble: str = ""  # why the engine could not be reached at the last look
    starts: dict[int, Start] = field(default_factory=dict)  # by job, in the order in which they were decided
    wishes: dict[int, Wish] = field(default_factory=dict)  # by job, until nothing of it runs any more
