"""The engines that `fairlead serve --engine` offers: each with its sentence, its runner and its reader.

A new engine is a package with a runner and a reader, and an entry here. Runners are imported when one is opened, because
the command line reads only the sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.model.errors import InputError

if TYPE_CHECKING:
    from fairlead.engines.runner import LeaseReader, Runner
    from fairlead.model.cluster import Cluster
    from fairlead.rounds.state import State


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """What an operator can choose for the runner; a runner ignores what does not concern it."""

    users: Sequence[str] = ()  # as whom jobs run, if the service runs as root: NAME, or TENANT=NAME
    emulate: bool = False  # emulate GPUs even if there are some
    node_pace: Mapping[str, float] = field(default_factory=dict)  # speed of emulated nodes relative to their type
    warm_standbys: int = 2  # processes that wait for leases
    warm_memory_gib: float = 4.0  # resident size of all of them together
    warm_contexts: bool = False  # whether they open CUDA contexts
    slurm_options: Sequence[str] = ()  # of sbatch, for every lease
    max_memory_gib: float | None = None  # that the processes of a job may use together
    max_processes: int | None = None  # that a job may have
    steer: str = ""  # the partition of Slurm whose jobs are steered; empty: every lease is a Slurm job of its own
    address: str = ""  # of Ray's head
    aliases: Mapping[str, str] = field(default_factory=dict)  # other spellings of GPU types
    fixed_cluster: bool = True  # its nodes are those that the operator named, and no others join
    look_s: float | None = None  # between two looks at Slurm; None: as the runner likes


@dataclass(frozen=True, slots=True)
class EngineKind:
    """An engine that can be chosen by name. Both functions take the state directory."""

    sentence: str  # completes "NAME: " in the help of the command line
    open_runner: Callable[[Path, State, RunnerOptions], Runner]
    open_reader: Callable[[Path], LeaseReader]
    # For an engine that knows its nodes: those that the options choose.
    import_cluster: Callable[[RunnerOptions], Cluster] | None = None
    nodes_join: bool = False  # later ones join by themselves


def _local_runner(directory: Path, state: State, options: RunnerOptions) -> Runner:
    from fairlead.engines.local import hierarchies
    from fairlead.engines.local.accounts import parse_accounts
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
    limits = hierarchies.GroupLimits.of(options.max_memory_gib, options.max_processes)
    found = hierarchies.find()
    hierarchies.check_limits(found, limits)
    runner = LocalRunner(
        directory,
        slots,
        pace=pace,
        node_pace=options.node_pace,
        accounts=parse_accounts(options.users),
        warm=warm,
        hierarchies=found,
        limits=limits,
    )
    runner.check_users(state.specs[j].id for j in state.active_jobs.tolist())
    return runner


def _local_reader(directory: Path) -> LeaseReader:
    from fairlead.engines.local.files import LocalReader

    return LocalReader(directory)


def _pretend_runner(directory: Path, state: State, options: RunnerOptions) -> Runner:
    from fairlead.engines.pretend.runner import PretendRunner

    return PretendRunner(directory)


def _pretend_reader(directory: Path) -> LeaseReader:
    from fairlead.engines.pretend.runner import PretendReader

    return PretendReader(directory)


def _slurm_runner(directory: Path, state: State, options: RunnerOptions) -> Runner:
    from fairlead.engines.local.devices import Pace
    from fairlead.engines.slurm.commands import Slurm
    from fairlead.engines.slurm.lease_runner import LOOK_S, SlurmLeaseRunner
    from fairlead.engines.slurm.steer_runner import SlurmSteerRunner

    gpus_of = _gpus_of(state)
    look_s = LOOK_S if options.look_s is None else options.look_s
    if options.steer:
        return SlurmSteerRunner(directory, Slurm(), options.steer, gpus_of=gpus_of, look_s=look_s)
    pace = Pace(state) if options.emulate else None
    extra = options.slurm_options
    return SlurmLeaseRunner(directory, Slurm(), options=extra, pace=pace, gpus_of=gpus_of, look_s=look_s)


def _gpus_of(state: State) -> Callable[[], dict[str, int]]:
    """GPUs by node of the cluster as it is whenever the function is called."""
    return lambda: dict(zip(state.cluster.nodes, state.cluster.node_gpus.tolist(), strict=True))


def _slurm_cluster(options: RunnerOptions) -> Cluster:
    from fairlead.engines.slurm.commands import Slurm
    from fairlead.engines.slurm.importing import import_cluster

    return import_cluster(Slurm(), options.aliases, options.steer)


def _ray_runner(directory: Path, state: State, options: RunnerOptions) -> Runner:
    from fairlead.engines.local.devices import Pace
    from fairlead.engines.ray.cluster import RayCluster
    from fairlead.engines.ray.runner import RayRunner

    pace = Pace(state) if options.emulate else None
    aliases = None if options.fixed_cluster else options.aliases
    return RayRunner(directory, RayCluster(options.address), pace=pace, gpus_of=_gpus_of(state), aliases=aliases)


def _ray_cluster(options: RunnerOptions) -> Cluster:
    from fairlead.engines.ray.cluster import RayCluster, check_installed
    from fairlead.engines.ray.importing import import_cluster

    check_installed()
    with closing(RayCluster(options.address)) as ray:
        ray.connect()
        return import_cluster(ray, options.aliases)


ENGINES: dict[str, EngineKind] = {
    "local": EngineKind("processes on this machine", _local_runner, _local_reader),
    "slurm": EngineKind("jobs of the Slurm cluster of this machine", _slurm_runner, _local_reader, _slurm_cluster),
    "ray": EngineKind("actors of a Ray cluster", _ray_runner, _local_reader, _ray_cluster, nodes_join=True),
    "pretend": EngineKind("jobs that only take time", _pretend_runner, _pretend_reader),
}
