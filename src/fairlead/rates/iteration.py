"""The duration of one training iteration, from profiled parts (Hops, SoCC 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairlead.model.errors import InputError

EXPOSED = 0.2  # part of the communication that the backward pass cannot hide, as measured in the paper


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an iteration on one GPU of a type, in seconds. Loading and waiting depend on where the data are."""

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
    source: str = "profiled parts"

    def __post_init__(self) -> None:
        _check(self, ("batch",), 1e-9, 1e9)
        _check(self, ("forward_s", "backward_s"), 1e-9, 1e6)
        _check(self, ("update_s", "load_cached_s", "load_disk_s", "wait_cached_s", "wait_disk_s"), 0.0, 1e6)
        _check(self, ("params_gib",), 0.0, 1e6)
        _check(self, ("cached",), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Links:
    """Bandwidths of a GPU type, measured offline."""

    link_gib_per_s: float  # B_link, between the GPUs of a node
    net_gib_per_s: float  # B_net, between nodes
    source: str = "measured links"

    def __post_init__(self) -> None:
        _check(self, ("link_gib_per_s", "net_gib_per_s"), 1e-9, 1e6)


def communication_s(parts: Parts, links: Links, gpus: int, nodes: int) -> float:
    """T_c = params / B_link (N - 1) / N on one node of N GPUs, params / B_net on several."""
    if nodes > 1:
        return parts.params_gib / links.net_gib_per_s
    return parts.params_gib / links.link_gib_per_s * (gpus - 1) / gpus


def iteration_s(parts: Parts, links: Links, gpus: int, nodes: int = 1) -> float:
    """E[T] = p_cache E[T | cached] + (1 - p_cache) E[T | disk], where

    pattern 1:  T = max(T_d, max(T_b + 0.2 T_c, T_c) + T_u) + T_f + T_w
    pattern 2:  T = T_d + max(T_b + 0.2 T_c, T_c) + T_u + T_f + T_w

    Departs: T_d and T_w enter by their means. In the paper they are normally distributed; the variance affects pattern 1
    only if loading takes about as long as the work that hides it.
    """
    T_c = communication_s(parts, links, gpus, nodes)
    work = max(parts.backward_s + EXPOSED * T_c, T_c) + parts.update_s

    def one(T_d: float, T_w: float) -> float:
        return (max(T_d, work) if parts.loads_ahead else T_d + work) + parts.forward_s + T_w

    cached, disk = one(parts.load_cached_s, parts.wait_cached_s), one(parts.load_disk_s, parts.wait_disk_s)
    return parts.cached * cached + (1 - parts.cached) * disk


def formula_samples_per_s(parts: Parts, links: Links, gpus: int, nodes: int = 1) -> float:
    """Samples per second of the whole job: every GPU processes one batch in E[T]."""
    return gpus * parts.batch / iteration_s(parts, links, gpus, nodes)


def _check(holder: Parts | Links, names: tuple[str, ...], low: float, high: float) -> None:
    for name in names:
        value = getattr(holder, name)
        if not (math.isfinite(value) and low <= value <= high):
            raise InputError(f"{name} is {value:g}; wanted a number from {low:g} to {high:g}")
