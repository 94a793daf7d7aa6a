"""The simulated world of a journal. Apart from folding, which a live service needs too and which knows no simulator."""

from __future__ import annotations

from fairlead.rounds.journal import Header
from fairlead.sim.truth import World


def world_of(header: Header) -> World | None:
    """The world in which the run was simulated; None where it was live."""
    world = header.more.get("world")
    return None if world is None else World(**{**world, "server_factor": tuple(world["server_factor"])})
