"""The device numbers on this machine of the GPUs of a cluster file, which are real or emulated."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.engines.leases import Lease
from fairlead.engines.local.nvml import Detection
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.rates.profile import chip_of
from fairlead.rounds.state import State


@dataclass(frozen=True, slots=True)
class Devices:
    """Device numbers by (node, slot). `note` informs the operator whether speeds will be real."""

    numbers: Mapping[tuple[str, int], int]
    emulated: bool
    note: str


def choose_devices(cluster: Cluster, detection: Detection, *, emulate: bool = False) -> Devices:
    """The machine's own GPUs if it has any, each used once; otherwise emulated slots."""
    if not detection.devices or emulate:
        reason = detection.why_none if not detection.devices else "as requested"
        numbers = slots_as_devices(cluster.nodes, cluster.node_gpus.tolist())
        return Devices(
            numbers, True, f"EMULATED: the cluster's {cluster.total_gpus} GPUs are slots on this machine ({reason})"
        )
    free: dict[str, list[int]] = {}
    for device in detection.devices:
        free.setdefault(chip_of(canonical_gpu(device.name)), []).append(device.index)
    have = ", ".join(f"{len(numbers)} x {gpu}" for gpu, numbers in free.items())
    wanted = Counter({cluster.gpu[t]: int(cluster.capacity[t]) for t in range(len(cluster.types))})
    numbers_of: dict[tuple[str, int], int] = {}
    for node, type_, gpus in zip(cluster.nodes, cluster.node_type.tolist(), cluster.node_gpus.tolist(), strict=True):
        here = free.get(chip_of(cluster.gpu[type_]), [])
        if len(here) < gpus:
            want = ", ".join(f"{count} x {gpu}" for gpu, count in wanted.items())
            raise InputError(f"the cluster file has {want}, this machine has {have}; correct the file, or emulate")
        numbers_of |= {(node, slot): here.pop(0) for slot in range(gpus)}
    return Devices(numbers_of, False, f"{len(numbers_of)} real GPUs of this machine ({have})")


class Slots(Mapping[tuple[str, int], int]):
    """Numbers by (node, slot) of a cluster that may change: slots of nodes that join get numbers on first use.

    Such a slot gets a GPU of this machine that has no slot yet, or any number if GPUs are emulated.
    """

    def __init__(self, devices: Devices, detection: Detection, cluster: Callable[[], Cluster]) -> None:
        self._numbers = dict(devices.numbers)
        self._emulated, self._detection, self._cluster = devices.emulated, detection, cluster

    def __getitem__(self, slot: tuple[str, int]) -> int:
        if slot not in self._numbers:
            taken = self._numbers.values()
            numbers = itertools.count() if self._emulated else self._own(slot[0])
            number = next((number for number in numbers if number not in taken), None)
            if number is None:
                raise InputError(f"this machine has no GPU left for slot {slot[1]} of node {slot[0]}; remove the node")
            self._numbers[slot] = number
        return self._numbers[slot]

    def keep(self, in_use: Mapping[tuple[str, int], int]) -> None:
        """Let slots keep the numbers that a lease uses; another slot that has one of them gets a new one on its next use."""
        self._numbers = {slot: number for slot, number in self._numbers.items() if number not in in_use.values()}
        self._numbers |= in_use

    def _own(self, node: str) -> Iterator[int]:
        cluster = self._cluster()
        gpu = cluster.gpu[cluster.type_of[cluster.nodes.index(node)]]
        return (d.index for d in self._detection.devices if chip_of(canonical_gpu(d.name)) == chip_of(gpu))

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class Pace(Mapping[str, float]):
    """The speed of each type of the current cluster, relative to the fastest."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, type_: str) -> float:
        return self._speeds()[type_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._speeds())

    def __len__(self) -> int:
        return len(self._speeds())

    def _speeds(self) -> dict[str, float]:
        pairs = zip(self._state.cluster.types, self._state.type_speed.tolist(), strict=True)
        return {type_: speed or 1.0 for type_, speed in pairs}


def slots_as_devices(nodes: Sequence[str], gpus: Sequence[int]) -> dict[tuple[str, int], int]:
    """Numbers for the slots of all nodes, one after another, for emulated GPUs."""
    slots = [(node, slot) for node, count in zip(nodes, gpus, strict=True) for slot in range(count)]
    return {key: number for number, key in enumerate(slots)}


def devices_of(lease: Lease, record: Any) -> dict[tuple[str, int], int]:
    """The device numbers in the record of a lease, by slot; empty if it cannot be read."""
    try:
        numbers = record["plan"]["env"]["CUDA_VISIBLE_DEVICES"].split(",")
        pairs = zip(lease.gpus, numbers, strict=True)
        return {(gpu.node, gpu.slot): int(number) for gpu, number in pairs if gpu.slot is not None}
    except (LookupError, TypeError, ValueError, AttributeError):
        return {}
