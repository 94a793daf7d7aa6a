"""How a lease looks to Slurm: the nodes and GPUs that it requests, and the command that starts the ranks of a gang.

Slurm requests the same number of GPUs on all nodes of a job. A lease with different numbers becomes a heterogeneous job,
with one component for each run of nodes that have the same number, in the order of the lease.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from fairlead.engines.leases import Lease
from fairlead.engines.ranks import Rank, rank_environment, ranks_of
from fairlead.engines.requests import Processes

_FIRST_PORT, _PORTS = 20_000, 12_000  # where ranks meet: below the ports that systems hand out by themselves


@dataclass(frozen=True, slots=True)
class Component:
    """Nodes that Slurm grants together, each with the same number of GPUs and of processes."""

    nodes: tuple[str, ...]
    gpus: int  # of each node
    tasks: int  # on each node

    @property
    def size(self) -> list[str]:
        """The options that `sbatch` and `srun` share."""
        return [f"--nodes={len(self.nodes)}", f"--ntasks-per-node={self.tasks}"]

    @property
    def options(self) -> list[str]:
        # The type is that of the nodes. Naming it would only add a word that the site may spell in another way.
        return [*self.size, f"--nodelist={','.join(self.nodes)}", f"--gres=gpu:{self.gpus}"]


def components(lease: Lease) -> list[Component]:
    return [
        Component(tuple(node for node, _ in nodes), gpus, gpus if lease.command.processes == Processes.PER_GPU else 1)
        for gpus, nodes in groupby(lease.nodes.items(), key=lambda item: item[1])
    ]


def launch_command(lease: Lease, ranks_file: str) -> str:
    """The shell command that starts the lease: its own, or `srun` with one task for each rank."""
    if lease.command.processes == Processes.ONE:
        return lease.command.run
    parts = components(lease)
    script = f"--kill-on-bad-exit=1 /bin/bash {shlex.quote(ranks_file)}"
    groups = [f"--het-group={number} " if len(parts) > 1 else "" for number in range(len(parts))]
    calls = [f"{group}{' '.join(part.size)} {script}" for group, part in zip(groups, parts, strict=True)]
    return f"exec srun {' : '.join(calls)}"


def ranks_script(lease: Lease, addresses: Mapping[str, str]) -> str:
    """The script of every task. Ranks are those of the lease, whatever order Slurm has its nodes in."""
    ranks = ranks_of(lease)
    if not ranks:
        return ""
    port = _FIRST_PORT + hash_of(lease) % _PORTS
    address = addresses.get(ranks[0].node, ranks[0].node)
    cases = "\n".join(_case(rank, address, port) for rank in ranks)
    return f'case "$SLURMD_NODENAME/$SLURM_LOCALID" in\n{cases}\nesac\n{lease.command.run}\n'


def hash_of(lease: Lease) -> int:
    """A number that is the same for the same lease in every process."""
    value = 0
    for character in f"{lease.job}/{lease.number}":
        value = (value * 31 + ord(character)) & 0xFFFFFFFF
    return value


def _case(rank: Rank, address: str, port: int) -> str:
    variables = " ".join(f"{name}={shlex.quote(text)}" for name, text in rank_environment(rank, address, port).items())
    return f"{rank.node}/{rank.local_rank}) export {variables};;"
