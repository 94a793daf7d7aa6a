"""Gangs: a lease as several processes that know each other, one for each node or GPU.

The variables are those of torchrun and other PyTorch launchers. The processes begin together and end
together: the first that ends with an error ends the others, and its exit code is that of the lease.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.engines.leases import Lease
from fairlead.engines.requests import Processes


@dataclass(frozen=True, slots=True)
class Rank:
    rank: int
    world: int  # processes of the gang
    node: str
    node_rank: int
    nodes: int
    local_rank: int  # among the processes of its node
    local_world: int
    gpus: tuple[int, ...]  # positions in the lease of the GPUs of this process
    visible: tuple[int, ...]  # positions of all GPUs of the lease on its node


def ranks_of(lease: Lease) -> tuple[Rank, ...]:
    """The ranks of a lease; empty for a job of one process, wherever its GPUs are."""
    if lease.command.processes == Processes.ONE:
        return ()
    on: dict[str, list[int]] = {}
    for position, gpu in enumerate(lease.gpus):
        on.setdefault(gpu.node, []).append(position)
    parts = [
        (node_rank, node, local_rank, mine, len(shares), tuple(positions))
        for node_rank, (node, positions) in enumerate(on.items())
        for shares in [_shares(positions, lease.command.processes)]
        for local_rank, mine in enumerate(shares)
    ]
    return tuple(
        Rank(rank, len(parts), node, node_rank, len(on), local_rank, local_world, mine, visible)
        for rank, (node_rank, node, local_rank, mine, local_world, visible) in enumerate(parts)
    )


def rank_environment(rank: Rank, address: str, port: int) -> dict[str, str]:
    """The variables of a rank; all ranks reach rank 0 at `address` and `port`."""
    return {
        "RANK": str(rank.rank),
        "WORLD_SIZE": str(rank.world),
        "NODE_RANK": str(rank.node_rank),
        "LOCAL_RANK": str(rank.local_rank),
        "LOCAL_WORLD_SIZE": str(rank.local_world),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "FAIRLEAD_NODES": str(rank.nodes),
        "FAIRLEAD_NODE_GPUS": str(len(rank.visible)),
    }


def _shares(positions: list[int], processes: str) -> list[tuple[int, ...]]:
    return [tuple(positions)] if processes == Processes.PER_NODE else [(position,) for position in positions]
