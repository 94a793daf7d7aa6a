"""All worlds in which the contract of engines is tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine_world import World
from far_world import FarWorld
from local_world import LocalWorld
from ray_world import RayWorld
from simulated_world import SimulatedWorld
from slurm_world import SlurmLeaseWorld
from steer_world import SteerWorld
from virtual_world import PretendWorld, VirtualWorld
from warm_world import WarmWorld

WORLDS: dict[str, Callable[[Path], World]] = {
    "simulated": lambda tmp_path: SimulatedWorld(),
    "virtual": lambda tmp_path: VirtualWorld(),
    "pretend": PretendWorld,
    "local": LocalWorld,
    "warm": WarmWorld,
    "slurm-leases": SlurmLeaseWorld,
    "slurm-steer": SteerWorld,
    "ray": RayWorld,
    "far": lambda tmp_path: FarWorld(),
}


def params(*without: str) -> list[str]:
    """The names as parameters of tests."""
    return [name for name in WORLDS if name not in without]
