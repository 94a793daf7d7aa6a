"""The cluster that Ray has: its nodes with GPUs, under their own names."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.engines.importing import ANY, grouped
from fairlead.engines.ray.cluster import RayCluster, RayNode
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu

LABELS = ("gpu-type", "ray.io/accelerator-type")  # of an administrator, and the one that Ray gives to GPUs it knows
_RESOURCE = "accelerator_type:"


def import_cluster(ray: RayCluster, aliases: Mapping[str, str]) -> Cluster:
    """All nodes with GPUs. Nodes with the same GPUs become one group."""
    nodes = [node for node in ray.look("").nodes.values() if node.gpus]
    if not nodes:
        raise InputError(f"Ray at {ray.address} has no node with GPUs; start nodes with `ray start --num-gpus=N`")
    return grouped({node.name: (gpu_of(node, aliases), node.gpus) for node in nodes})


def gpu_of(node: RayNode, aliases: Mapping[str, str]) -> str:
    """The type of the node's GPUs, by its labels or its resources, or else by the alias for unknown types."""
    types = [node.labels[label] for label in LABELS if label in node.labels]
    types += [name.removeprefix(_RESOURCE) for name in node.resources if name.startswith(_RESOURCE)]
    if not types and not any(name.lower() == ANY for name in aliases):
        raise InputError(
            f"Ray knows no type for the GPUs of node {node.name}; start it with --labels {LABELS[0]}=v100, or name the "
            f"type of all such nodes with --alias {ANY}=v100"
        )
    return canonical_gpu([*types, ANY][0], aliases)
