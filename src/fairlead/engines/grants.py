"""From a decided spot to single GPUs: their slots, the tasks on each, and the expected rate."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from functools import partial

from fairlead.engines.leases import Gpu
from fairlead.model.allocation import Spot
from fairlead.rates.relaxed import split
from fairlead.rates.spot import spot_rate
from fairlead.rounds.state import State


def choose_slots(state: State, spot: Spot, taken: Set[tuple[str, int | None]]) -> tuple[Gpu, ...] | None:
    """The lowest free slots of every node of the spot; None while there are too few."""
    cluster, chosen = state.cluster, []
    for node, count in spot:
        name, type_ = cluster.nodes[node], cluster.types[cluster.node_type[node]]
        free = [slot for slot in range(int(cluster.node_gpus[node])) if (name, slot) not in taken][:count]
        if len(free) < count:
            return None
        chosen += [Gpu(name, type_, slot) for slot in free]
    return tuple(chosen)


def without_slots(state: State, spot: Spot) -> tuple[Gpu, ...]:
    """GPUs without slots, for an engine that picks devices itself."""
    cluster = state.cluster
    return tuple(
        Gpu(cluster.nodes[node], cluster.types[cluster.node_type[node]], None)
        for node, count in spot
        for _ in range(count)
    )


def has_room(state: State, spot: Spot, used: Mapping[str, int]) -> bool:
    """Whether every node has enough GPUs that no lease uses."""
    cluster = state.cluster
    return all(used.get(cluster.nodes[node], 0) + count <= cluster.node_gpus[node] for node, count in spot)


def with_tasks(state: State, j: int, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs with the job's tasks, one for each GPU of its reference width; the slowest GPU finishes as early as possible."""
    spec, types = state.specs[j], state.cluster.types
    nodes = len({gpu.node for gpu in gpus})
    speed = {
        name: state.estimator.at(spec.model, types.index(name), len(gpus), nodes) for name in {g.type for g in gpus}
    }
    rates = [speed[gpu.type] for gpu in gpus] if any(speed.values()) else [1.0] * len(gpus)
    counts = split(max(spec.gpus, len(gpus)), rates)
    return tuple(replace(gpu, tasks=count) for gpu, count in zip(gpus, counts, strict=True))


def believed_rate(state: State, j: int, spot: Spot) -> float:
    """The current estimate of samples per second."""
    learnt = state.learnt_rate(j, spot)
    if learnt is not None:
        return learnt
    return spot_rate(partial(state.estimator.at, state.specs[j].model), spot, state.cluster.type_of)
