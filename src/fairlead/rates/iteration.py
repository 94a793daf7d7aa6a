"""How long one training iteration takes, from profiled parts (Hops, SoCC 2024)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.rates.profile import Speed

EXPOSED = 0.2  # share of the communication that the backward pass cannot hide, as the paper measured it


@dataclass(frozen=True, slots=True)
class Parts:
    """Profiled on one GPU of a type, in seconds. Loading and waiting differ with where the data come from."""

    batch: float  # samples per GPU
    forward_s: float  # T_f
    backward_s: float  # T_b
    update_s: float  # T_u
    params_gib: float  # what is exchanged in every iteration
    load_cached_s: float = 0.0  # T_d
    load_disk_s: float = 0.0
    wait_cached_s: float = 0.0  # T_w, for slower peers
    wait_disk_s: float = 0.0
    cached: float = 1.0  # p_cache
    loads_ahead: bool = True  # pattern 1: loading overlaps the backward pass and communication


@dataclass(frozen=True, slots=True)
class Links:
    """Measured offline by type."""

    link_gib_per_s: float  # between the GPUs of a node
    net_gib_per_s: float  # between nodes


def communication_s(parts: Parts, links: Links, gpus: int, nodes: int) -> float:
    """T_c = params / B_link (N - 1) / N on one node of N GPUs, params / B_net on several."""
    if nodes > 1:
        return parts.params_gib / links.net_gib_per_s
    return parts.params_gib / links.link_gib_per_s * (gpus - 1) / gpus


def iteration_s(parts: Parts, links: Links, gpus: int, nodes: int = 1) -> float:
    """E[T] = p_cache E[T | cached] + (1 - p_cache) E[T | disk], where

    pattern 1:  T = max(T_d, max(T_b + 0.2 T_c, T_c) + T_u) + T_f + T_w
    pattern 2:  T = T_d + max(T_b + 0.2 T_c, T_c) + T_u + T_f + T_w

    Departs: T_d and T_w enter by their means; the paper's normals have spreads, which pattern 1 feels only where loading
    is about as long as what it hides behind.
    """
    T_c = communication_s(parts, links, gpus, nodes)
    work = max(parts.backward_s + EXPOSED * T_c, T_c) + parts.update_s

    def one(T_d: float, T_w: float) -> float:
        return (max(T_d, work) if parts.loads_ahead else T_d + work) + parts.forward_s + T_w

    cached, disk = one(parts.load_cached_s, parts.wait_cached_s), one(parts.load_disk_s, parts.wait_disk_s)
    return parts.cached * cached + (1 - parts.cached) * disk


def speeds_from_parts(
    model: str, gpu: str, parts: Parts, links: Links, widths: Iterable[int], node_gpus: int
) -> tuple[Speed, ...]:
    """Rows of a profile by the formula: every width on as few nodes as hold it, and on two."""
    rows: dict[tuple[int, int], Speed] = {}
    for gpus in widths:
        for nodes in {-(-gpus // node_gpus), min(2, gpus)}:
            seconds = iteration_s(parts, links, gpus, nodes)
            rows[gpus, nodes] = Speed(model, gpu, gpus, nodes, parts.batch, 1.0 / seconds, "iteration-time formula")
    return tuple(rows[key] for key in sorted(rows))
