"""The engines that `fairlead serve --engine` offers: each with its sentence, its runner and its reader.

A new engine is a package with a runner and a reader, and an entry here. Runners are imported when one is opened, because
the command line reads only the sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.model.errors import InputError

if TYPE_CHECKING:
    from fairlead.engines.runner import LeaseReader, Runner
    from fairlead.rounds.state import State


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """What an operator can choose for the runner; a runner ignores what does not concern it."""

    user: str | None = None  # that jobs run as, if the service runs as root
    emulate: bool = False  # emulate GPUs even if there are some
    node_pace: Mapping[str, float] = field(default_factory=dict)  # speed of emulated nodes relative to their type
    warm_standbys: int = 2  # processes that wait for leases
    warm_memory_gib: float = 4.0  # resident size of all of them together
    warm_contexts: bool = False  # whether they open CUDA contexts


@dataclass(frozen=True, slots=True)
class EngineKind:
    """An engine that can be chosen by name. Both functions take the state directory."""

    sentence: str  # completes "NAME: " in the help of the command line
    open_runner: Callable[[Path, State, RunnerOptions], Runner]
    open_reader: Callable[[Path], LeaseReader]


def _local_runner(directory: Path, state: State, options: RunnerOptions) -> Runner:
    from fairlead.engines.local.devices import Pace, Slots, choose_devices
    from fairlead.engines.local.nvml import detect
    from fairlead.engines.local.runner import LocalRunner
    from fairlead.engines.local.warm.pool import WarmLimits

    machine = detect()
    devices = choose_devices(state.cluster, machine, emulate=options.emulate)
    slots = Slots(devices, machine, lambda: state.cluster)
    if options.node_pace and not devices.emulated:
        raise InputError("only emulated nodes have a pace of their own; leave out --node-pace, or add --emulate")
    pace = Pace(state) if devices.emulated else None
    contexts = options.warm_contexts and not devices.emulated
    warm = WarmLimits(options.warm_standbys, options.warm_memory_gib, contexts)
    return LocalRunner(directory, slots, pace=pace, node_pace=options.node_pace, user=options.user, warm=warm)


def _local_reader(directory: Path) -> LeaseReader:
    from fairlead.engines.local.files import LocalReader

    return LocalReader(directory)


def _pretend_runner(directory: Path, state: State, options: RunnerOptions) -> Runner:
    from fairlead.engines.pretend.runner import FILE, PretendRunner

    return PretendRunner(directory / FILE)


def _pretend_reader(directory: Path) -> LeaseReader:
    from fairlead.engines.pretend.runner import FILE, PretendReader

    return PretendReader(directory / FILE)


ENGINES: dict[str, EngineKind] = {
    "local": EngineKind("processes on this machine", _local_runner, _local_reader),
    "pretend": EngineKind("jobs that only take time", _pretend_runner, _pretend_reader),
}
