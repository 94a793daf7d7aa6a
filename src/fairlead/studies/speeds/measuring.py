"""Measures the speed of a job on each GPU type by running a few of its steps there. The job must report its steps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, replace

from fairlead.engines.leases import OVER, Condition, Gpu, Lease, Report
from fairlead.engines.local.devices import choose_devices
from fairlead.engines.local.nvml import detect
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.requests import Command
from fairlead.engines.runner import LaunchError, Runner
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.rates.estimator import TableEstimator, allowed_types
from fairlead.rates.iteration import Links, Parts
from fairlead.rates.profile import Profile, Speed

WARM_UP = 2  # steps that do not count: the first ones load, compile and cache
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class MeasuredSpeeds:
    """Rows for the types that could be measured, and the reason for each type that could not."""

    rows: tuple[Speed, ...]
    failures: dict[str, str]
    note: str  # whether the GPUs were real
    parts: dict[tuple[str, str], Parts]  # (model, GPU), if the job reported them and the GPU's links are known
    links: dict[str, Links]

    def profile(self, name: str) -> Profile:
        return Profile(name, self.rows, {}, self.parts, self.links)


def profile_job(
    spec: JobSpec,
    command: Command,
    cluster: Cluster,
    known: Profile,
    *,
    steps: int = 20,
    limit_s: float = 300.0,
    emulate: bool = False,
) -> MeasuredSpeeds:
    """Measure a job on this machine, one type after another, in a scratch directory that leaves its checkpoints alone.

    Emulated GPUs run at the pace of `known`, so the result then describes only the emulation.
    """
    devices = choose_devices(cluster, detect(), emulate=emulate)
    speed = TableEstimator(known, cluster).type_speed().tolist()
    pace = {t: value or 1.0 for t, value in zip(cluster.types, speed, strict=True)} if devices.emulated else None
    with tempfile.TemporaryDirectory(prefix="fairlead-profile-") as root:
        runner = LocalRunner(root, devices.numbers, pace=pace)
        source = f"measured by fairlead profile over {steps} steps" + (", EMULATED pace" if devices.emulated else "")
        rows: list[Speed] = []
        failures: dict[str, str] = {}
        parts: dict[tuple[str, str], Parts] = {}
        for t in allowed_types(spec, cluster):
            outcome = measure_on(runner, spec, command, cluster, t, steps=steps, limit_s=limit_s, source=source)
            if isinstance(outcome, str):
                failures[cluster.types[t]] = outcome
                continue
            row, reported = outcome
            rows.append(row)
            if reported is not None:
                try:
                    parts[row.model, row.gpu] = _parts(reported, row, known)
                except InputError as error:
                    failures[f"{cluster.types[t]}, parts"] = str(error)
    linked = {gpu: links for _, gpu in parts if (links := known.links_of(gpu)) is not None}
    return MeasuredSpeeds(tuple(rows), failures, devices.note, parts, linked)


def measure_on(
    runner: Runner,
    spec: JobSpec,
    command: Command,
    cluster: Cluster,
    type_: int,
    *,
    steps: int,
    limit_s: float,
    source: str,
) -> tuple[Speed, Mapping[str, float] | None] | str:
    """A row and the parts that the job reported, or the reason why there is no row."""
    gpus = _first_gpus(cluster, type_, spec.gpus)
    if gpus is None:
        return f"the cluster has {cluster.capacity[type_]} GPUs of this type, the job needs {spec.gpus}"
    lease = Lease(f"{spec.id}-{cluster.types[type_]}", 1, gpus, replace(command, checkpoint_dir=None))
    try:
        with _running(runner, lease):
            first, last, ending = _watch(runner, lease, steps, limit_s)
    except LaunchError as error:
        return str(error)
    if first is None or last is None or first.step is None or last.step is None or last.step <= first.step:
        return f"{ending}, before {WARM_UP + 1} steps were reported; call fairlead.lease.report(step) in the script"
    done = last.step - first.step
    batch = 1.0
    if last.samples is not None and last.step > 0:
        batch = last.samples / last.step / spec.gpus
    nodes = len({gpu.node for gpu in gpus})
    rate = done / (last.at_s - first.at_s)
    return Speed(spec.model, cluster.gpu[type_], spec.gpus, nodes, batch, rate, source), last.parts


def _parts(reported: Mapping[str, float], row: Speed, known: Profile) -> Parts:
    """The parts of an iteration that the job reported, checked."""
    if known.links_of(row.gpu) is None:
        raise InputError(f"the job reported parts, but no links of {row.gpu} are known; add them with --throughputs")
    values = {"batch": row.batch, **reported}
    names = {f.name: f.default is MISSING for f in fields(Parts) if f.name != "source"}
    for name in values:
        if name not in names:
            raise InputError(f'the job reported a part "{name}"; wanted {", ".join(names)}')
    missing = [name for name, needed in names.items() if needed and name not in values]
    if missing:
        raise InputError(f"the job reported parts without {missing[0]}; report it as well")
    ahead = bool(values.pop("loads_ahead", True))
    return Parts(**values, loads_ahead=ahead, source=row.source)


def _watch(runner: Runner, lease: Lease, steps: int, limit_s: float) -> tuple[Report | None, Report | None, str]:
    """The first report after the warm-up, the last report, and why the measurement ended."""
    first = last = None
    give_up_s = time.monotonic() + limit_s
    while time.monotonic() < give_up_s:
        sight = runner.look([lease.key]).sight(lease.key)
        report = sight.report
        if report is not None and report.step is not None:
            if first is None and report.step >= WARM_UP:
                first = report
            last = report
            if first is not None and first.step is not None and report.step >= first.step + steps:
                return first, last, "enough steps were reported"
        if sight.condition is Condition.ENDED:
            return first, last, f"the job ended with exit code {sight.code}"
        if sight.condition is Condition.VANISHED:
            return first, last, "the job vanished"
        time.sleep(_POLL_S)
    return first, last, f"{limit_s:g} s passed"


@contextmanager
def _running(runner: Runner, lease: Lease) -> Iterator[None]:
    """Run the job and remove everything of it afterwards, however the measurement ends."""
    runner.launch(lease)
    try:
        yield
    finally:
        heard = runner.ask_to_stop(lease)
        kill_s = time.monotonic() + lease.command.grace_s
        while (condition := runner.look([lease.key]).sight(lease.key).condition) not in OVER:
            if condition in (Condition.NEVER_CLAIMED, Condition.QUEUED):
                runner.revoke(lease.key)
            elif time.monotonic() >= kill_s:
                runner.kill(lease)
            elif not heard:
                heard = runner.ask_to_stop(lease)
            time.sleep(_POLL_S / 2)


def _first_gpus(cluster: Cluster, type_: int, gpus: int) -> tuple[Gpu, ...] | None:
    """GPUs on as few nodes as possible, the largest node first; None if there are too few."""
    chosen: list[Gpu] = []
    nodes = [n for n in range(len(cluster.nodes)) if cluster.node_type[n] == type_]
    for n in sorted(nodes, key=lambda n: (-int(cluster.node_gpus[n]), n)):
        left = gpus - len(chosen)
        chosen += [
            Gpu(cluster.nodes[n], cluster.types[type_], slot) for slot in range(min(int(cluster.node_gpus[n]), left))
        ]
    return tuple(chosen) if len(chosen) == gpus else None
