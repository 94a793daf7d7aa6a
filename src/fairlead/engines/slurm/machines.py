"""The nodes of `sinfo`, of whatever version."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairlead.engines.slurm.tables import SEPARATOR, read_table, value
from fairlead.model.slurm_text import gpus_by_type

COLUMNS = ("NodeList", "NodeAddr", "StateComplete", "Gres", "GresUsed", "Partition", "Reason")

# Words of a state in which a node is gone with all that ran there, and in which it takes no new jobs. A node that does
# not answer keeps its jobs until Slurm calls it down (SlurmdTimeout): for a while after a restart of the controller no
# node has answered yet.
_GONE = frozenset({"down", "fail", "powered_down", "powering_down", "power_down", "future"})
_CLOSED = frozenset(
    {"drain", "drained", "draining", "failing", "maint", "reboot", "reboot_issued", "reboot_requested", "reserved"}
    | {"not_responding", "unknown"}
    | {"powering_up", "power_up", "blocked", "error", "perfctrs"}
)
_SIGNS = {"*": "not_responding", "~": "powered_down", "#": "powering_up", "!": "powering_down", "%": "powering_down"}
_SIGNS |= {"$": "maint", "@": "reboot", "^": "reboot"}


@dataclass(frozen=True, slots=True)
class SlurmNode:
    name: str
    address: str
    states: frozenset[str]
    gpus: dict[str, int]  # by type, in Slurm's words
    used: int  # GPUs that any job holds
    partitions: tuple[str, ...]
    reason: str

    @property
    def gone(self) -> bool:
        """Nothing runs there, as far as the controller knows."""
        return not self.states.isdisjoint(_GONE)

    @property
    def open(self) -> bool:
        """It takes new jobs."""
        return self.states.isdisjoint(_GONE | _CLOSED)


def usable_gpus(node: SlurmNode, gpus: int, ours: int) -> int:
    """The GPUs of a node that no foreign job holds; of a node that takes no new jobs, those that are ours."""
    return ours + max(gpus - max(node.used, ours), 0) if node.open else ours


def read_nodes(text: str, columns: Sequence[str] = COLUMNS, separator: str = SEPARATOR) -> dict[str, SlurmNode]:
    """The nodes by name. Slurm prints a line for each partition of a node."""
    nodes: dict[str, SlurmNode] = {}
    for row in read_table(text, columns, separator):
        node = _node({**dict.fromkeys(COLUMNS, ""), **row})
        before = nodes.get(node.name)
        nodes[node.name] = node if before is None else replace(before, partitions=before.partitions + node.partitions)
    return nodes


def _node(row: dict[str, str]) -> SlurmNode:
    name = value(row["NodeList"])
    return SlurmNode(
        name=name,
        address=value(row["NodeAddr"]) or name,
        states=_states(value(row["StateComplete"])),
        gpus=gpus_by_type(value(row["Gres"])),
        used=sum(gpus_by_type(value(row["GresUsed"])).values()),
        partitions=(value(row["Partition"]).removesuffix("*"),),
        reason=value(row["Reason"]),
    )


def _states(text: str) -> frozenset[str]:
    """`MIXED+DRAIN`, `idle*` and the like as single words in lower case."""
    words = {word for word in re.split(r"[^a-z_]+", text.lower()) if word}
    return frozenset(words | {_SIGNS[sign] for sign in text if sign in _SIGNS})
