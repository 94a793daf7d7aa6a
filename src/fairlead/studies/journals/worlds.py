"""The simulated world of a journal; separate from folding, which a live service needs without the simulator."""

from __future__ import annotations

from fairlead.rounds.journal import Header
from fairlead.sim.truth import World


def world_of(header: Header) -> World | None:
    """The world in which the run was simulated; None if it was live."""
    world = header.more.get("world")
    if world is None:
        return None
    ranges = {name: tuple(world[name]) for name in ("server_factor", "job_server_factor") if name in world}
    declared = tuple((tenant, factor) for tenant, factor in world.get("declared_speeds", ()))
    return World(**{**world, **ranges, "declared_speeds": declared})
