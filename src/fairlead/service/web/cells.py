"""The cluster as cells: each GPU of each node, and the job that holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fairlead.service.store.rows import GpuHolder, NodeRow


class CellKind(StrEnum):
    JOB = "job"
    OTHERS = "others"  # of jobs that the reader may not see, or of other users of the node
    FREE = "free"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class CellRun:
    """GPUs of a node side by side that have the same holder."""

    kind: CellKind
    gpus: int
    job: GpuHolder | None = None


@dataclass(frozen=True, slots=True)
class NodeCells:
    node: NodeRow
    runs: tuple[CellRun, ...]


@dataclass(frozen=True, slots=True)
class TypeCells:
    """The nodes of one GPU type, and how many of its GPUs there are, are up and are held."""

    type: str
    nodes: tuple[NodeCells, ...]
    total: int
    up: int
    held: int


def cells_by_type(nodes: Sequence[NodeRow], jobs: Iterable[GpuHolder]) -> list[TypeCells]:
    """All nodes by type, in the order of the cluster. `jobs` are those that the reader may see."""
    on_node: dict[str, list[tuple[GpuHolder, int]]] = {}
    for job in jobs:
        for name, count in job.nodes.items():
            on_node.setdefault(name, []).append((job, count))
    rows: dict[str, list[NodeCells]] = {}
    for node in nodes:
        rows.setdefault(node.type, []).append(NodeCells(node, _runs(node, on_node.get(node.name, ()))))
    return [_type_cells(type_, cells) for type_, cells in rows.items()]


def _runs(node: NodeRow, jobs: Sequence[tuple[GpuHolder, int]]) -> tuple[CellRun, ...]:
    seen = sum(count for _, count in jobs)
    free = max(min(node.free, node.gpus - seen), 0) if node.up else 0
    rest = max(node.gpus - seen - free, 0)
    runs = [CellRun(CellKind.JOB, count, job) for job, count in jobs]
    runs += [CellRun(CellKind.OTHERS if node.up else CellKind.DOWN, rest)] if rest else []
    return (*runs, *([CellRun(CellKind.FREE, free)] if free else []))


def _type_cells(type_: str, cells: Sequence[NodeCells]) -> TypeCells:
    held = (CellKind.JOB, CellKind.OTHERS)
    return TypeCells(
        type_,
        tuple(cells),
        total=sum(one.node.gpus for one in cells),
        up=sum(one.node.gpus for one in cells if one.node.up),
        held=sum(run.gpus for one in cells for run in one.runs if run.kind in held),
    )


def gpus_by_tenant(jobs: Iterable[GpuHolder]) -> Mapping[str, int]:
    """GPUs that the tenants of these jobs hold, in alphabetical order."""
    held: dict[str, int] = {}
    for job in jobs:
        held[job.tenant] = held.get(job.tenant, 0) + sum(job.nodes.values())
    return dict(sorted(held.items()))
