"""The cluster that Slurm has: its nodes with GPUs, under their own names."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.engines.importing import ANY, grouped
from fairlead.engines.slurm.commands import Slurm
from fairlead.engines.slurm.machines import SlurmNode
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu


def import_cluster(slurm: Slurm, aliases: Mapping[str, str], partition: str = "") -> Cluster:
    """All nodes with GPUs, or those of one partition, up or not. Nodes with the same GPUs become one group."""
    nodes = [node for node in slurm.nodes().values() if node.gpus and (not partition or partition in node.partitions)]
    if not nodes:
        where = f" in partition {partition}" if partition else ""
        raise InputError(f"sinfo shows no node with GPUs{where}; wanted nodes with Gres=gpu:TYPE:COUNT in slurm.conf")
    return grouped({node.name: _gpus(node, aliases) for node in nodes})


def _gpus(node: SlurmNode, aliases: Mapping[str, str]) -> tuple[str, int]:
    if len(node.gpus) > 1:
        raise InputError(
            f"node {node.name} has several types of GPU ({', '.join(node.gpus)}), which this engine cannot steer; "
            "list the other nodes in a cluster file and name it with --cluster"
        )
    ((type_, count),) = node.gpus.items()
    if not type_ and not any(name.lower() == ANY for name in aliases):
        raise InputError(f"Slurm knows no type for the GPUs of node {node.name}; name it with --alias {ANY}=v100")
    return canonical_gpu(type_ or ANY, aliases), count
