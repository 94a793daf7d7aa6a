"""Recounts the reasons of a decision from what the journal has reported, without anything of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

SAME = 1e-6  # relative, for sums in another order
Need = Callable[[bool, str], None]


@dataclass(frozen=True, slots=True)
class NodesNow:
    """Nodes as the journal has them after a decision."""

    type_of: Mapping[str, int]
    size: Mapping[str, int]
    usable: Mapping[str, int]  # 0 where the node is down
    used: Mapping[str, int]

    def free(self, types: set[int]) -> dict[int, int]:
        """By type."""
        return self._by_type(types, lambda node: self.usable[node] - self.used.get(node, 0))

    def up(self, types: set[int]) -> dict[int, int]:
        return self._by_type(types, lambda node: self.usable[node])

    def in_all(self, types: set[int]) -> dict[int, int]:
        return self._by_type(types, lambda node: self.size[node])

    def gaps(self, types: set[int]) -> list[int]:
        """Free GPUs of the nodes that have some."""
        free = (self.usable[node] - self.used.get(node, 0) for node, t in self.type_of.items() if t in types)
        return [gpus for gpus in free if gpus > 0]

    def _by_type(self, types: set[int], count: Callable[[str], int]) -> dict[int, int]:
        totals = dict.fromkeys(types, 0)
        for node, t in self.type_of.items():
            if t in types:
                totals[t] += max(count(node), 0)
        return totals


def counts(spec: dict[str, Any], types: set[int], in_all: dict[int, int]) -> Callable[[dict[int, int]], int]:
    """GPUs by type -> those that the job could have together: of one type, or of all where none alone is large enough."""
    alone = any(in_all.get(t, 0) >= spec["gpus"] for t in types)
    return lambda by_type: max(by_type.values(), default=0) if alone else sum(by_type.values())


def types_that_run(
    spec: dict[str, Any], header: dict[str, Any], cluster: dict[str, Any], in_all: dict[int, int]
) -> set[int]:
    """Types on which the job could run, were the cluster empty: allowed, with the memory and with a speed in the profile,
    and large enough for the reference width. A job that may mix types needs no single type that is large enough.
    """
    profile = header["profile"]
    need_gib = profile["facts"].get(spec["model"], {}).get("memory_gib", 0.0)
    measured = {row[1] for row in profile["speeds"] if row[0] == spec["model"]}
    measured |= {gpu for model, gpu, _ in profile.get("parts", ()) if model == spec["model"]}
    may = {
        t
        for t, (label, gpu) in enumerate(zip(cluster["types"], cluster["gpu"], strict=True))
        if (not spec["types"] or label in spec["types"] or gpu in spec["types"])
        and need_gib <= cluster["memory_gib"][t]
        and (gpu in measured or gpu.rsplit("-", 1)[0] in measured)
    }
    alone = {t for t in may if in_all.get(t, 0) >= spec["gpus"] and _has_nodes(spec, cluster, t)}
    mixes = spec["relaxed"] and sum(in_all.get(t, 0) for t in may) >= spec["gpus"] > 1
    return alone or (may if mixes else set())


def _has_nodes(spec: dict[str, Any], cluster: dict[str, Any], t: int) -> bool:
    """Whether the type has as many nodes of the size that a job with a fixed number of nodes needs."""
    exact = spec.get("nodes") or 1
    sizes = [gpus for of, gpus in zip(cluster["node_type"], cluster["node_gpus"], strict=True) if of == t]
    return "nodes" not in spec or sum(gpus >= spec["gpus"] // exact for gpus in sizes) >= exact


def check_reason(
    job: str,
    spec: dict[str, Any],
    row: list[Any],
    types: set[int],
    nodes: NodesNow,
    record: dict[str, Any],
    running: int,
    pre_empted: list[tuple[float, float]],
    need: Need,
) -> None:
    """One row of `why`: the numbers are those of the cluster, and the reason is one that they allow.

    `pre_empted` has for each limit on pre-emption what was charged in the last hour; a run that began in the middle of
    another may have charged more before.
    """
    code, wanted, free, a, b, *terms = row
    in_event = record["cause"] == "event"
    need(wanted == spec["gpus"], f"{job} waits for {wanted} GPUs and asks for {spec['gpus']}")
    if code == "NeverFits":
        need(not types, f"{job} never fits, and types {types} could run it")
        return
    if code == "Measuring":
        need(a >= 0 and b > 0, f"{job} waits until its model was measured on {b} more GPU types")
        return
    together = counts(spec, types, nodes.in_all(types))
    most_free = together(nodes.free(types))
    need(free == most_free, f"{job} has a reason with {free} free GPUs, but there are {most_free}")
    fits = most_free >= wanted
    if code == "Capacity":
        need(in_event and not fits, f"{job} waits for capacity, and {most_free} of {wanted} GPUs are free")
    elif code == "Fragmented":
        gaps = nodes.gaps(types)
        need(fits, f"{job} waits because of fragments, and only {most_free} of {wanted} GPUs are free")
        need(a == max(gaps) and b == len(gaps), f"{job}: {a} GPUs on the best of {b} nodes, the gaps are {gaps}")
    elif code == "Order":
        free_by_type, up = nodes.free(types), nodes.up(types)
        in_use = sum(up[t] - free_by_type[t] for t in types)
        need(a == running and b == in_use, f"{job} waits for {a} jobs on {b} GPUs, it is {running} on {in_use}")
    elif code == "Share":
        need(a >= 0 and b >= 0, f"{job}: a share of {a} GPUs, of which {b} are held")
    elif code == "Window":
        need(a >= 0, f"{job} waits outside a window of {a} jobs")
    elif code == "MinRun":
        need(not in_event and not fits, f"{job} waits for jobs that must stay, and {most_free} GPUs are free")
        need(a > 0 and b > record["time_s"], f"{job} waits for {a} GPUs until {b}")
    elif code == "PreemptionLimit":
        need(a > 0 and math.isfinite(b), f"{job}: pre-emption cost {a} GPU-seconds of {b}")
        known = [spent for limit, spent in pre_empted if limit == b and spent <= a * (1 + SAME)]
        need(bool(known), f"{job}: pre-emption cost {a} GPU-seconds of {b}, recounted: {pre_empted}")
    elif code == "NodeDown":
        up_most, total = together(nodes.up(types)), sum(nodes.in_all(types).values())
        need(b == up_most < wanted, f"{job} waits for nodes that are down; {up_most} of {wanted} GPUs are up")
        need(a == total, f"{job}: {a} GPUs of its types in all, there are {total}")
    else:
        need(code == "Quota", f"{job} waits for a reason that nobody knows: {code}")
    need(len(terms) == len(record.get("terms", ())), f"{job} has {len(terms)} terms of the policy")
