"""One simulated run, from a set-up to a folded state."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO

import numpy as np

from fairlead import __version__
from fairlead.model.arrays import FloatArray
from fairlead.model.changes import Change, clusters_over_time
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Decision
from fairlead.model.errors import ImpossibleError, InputError
from fairlead.model.events import Event
from fairlead.model.jobs import JobSpec
from fairlead.model.units import format_duration
from fairlead.model.words import counted, did_you_mean
from fairlead.policies.policy import AnyPolicy
from fairlead.rates.estimator import Estimator, TableEstimator, allowed_rates, allowed_types
from fairlead.rates.profile import Profile
from fairlead.rates.three_layer import Sensing, build_estimator
from fairlead.rounds.journal import Header, JournalWriter, NoJournal
from fairlead.rounds.loop import Journal, Run, Settings, When, settings_to_json
from fairlead.rounds.state import State
from fairlead.sim.declared import declared_profile
from fairlead.sim.loops import Stage, loop_for
from fairlead.sim.truth import Truth, World
from fairlead.studies.runs.summary import FinishedJobs, finished_jobs
from fairlead.traces.formats import Trace
from fairlead.traces.load import seconds_per_step


@dataclass(frozen=True)
class Setup:
    cluster: Cluster
    trace: Trace
    profile: Profile
    policy: AnyPolicy
    settings: Settings = field(default_factory=Settings)
    world: World = field(default_factory=World)
    restart_s: float | None = None  # overrides every model's cost
    tenant_weight: Mapping[str, float] = field(default_factory=dict)
    believed: Profile | None = None  # the speeds that the scheduler assumes, if they are not the true ones
    sensing: Sensing = Sensing.TABLE  # what the scheduler learns about speeds while jobs run
    all_new: bool = False  # no speed of any model is known before its jobs have run
    changes: tuple[Change, ...] = ()  # nodes that join or leave, or lend GPUs to others

    def used_profile(self) -> Profile:
        """The part of the profile that the run may use. The journal contains only this part, so the run must not use more."""
        known, gpus = self.profile if self.believed is None else self.believed, self.clusters()[-1].gpu
        used = known.restricted_to({job.model for job in self.trace.jobs}, gpus)
        return declared_profile(used, self.trace.jobs, dict(self.world.declared_speeds), gpus)

    def clusters(self) -> list[Cluster]:
        """The cluster at first and after each change; types are never removed, so the last has all of them."""
        return clusters_over_time(self.cluster, self.changes)

    def estimator(self) -> Estimator:
        return build_estimator(self.used_profile(), self.cluster, self.restart_s, self.sensing, all_new=self.all_new)

    def truth(self) -> Truth:
        rates = TableEstimator(self.profile, self.cluster, restart_s=self.restart_s)
        return Truth(self.trace.jobs, self.cluster, rates, self.world)

    def header(self) -> Header:
        return Header(
            cluster=self.cluster,
            profile=self.used_profile(),
            restart_s=self.restart_s,
            policy=self.policy.name,
            parameters=self.policy.parameters,
            settings=settings_to_json(self.settings),
            tenant_weight=dict(self.tenant_weight),
            more={
                "version": __version__,
                "level": self.policy.level,
                **({} if self.sensing is Sensing.TABLE else {"sensing": self.sensing}),
                **({"all_new": True} if self.all_new else {}),
                "world": asdict(self.world),
                "trace": {"name": self.trace.name, "format": self.trace.format, "sha256": self.trace.sha256},
            },
        )


@dataclass(frozen=True)
class Result:
    state: State
    run: Run
    cpu_s: float
    wall_s: float
    profiling_gpu_s: float = 0.0  # GPU-seconds on which new models were measured
    true_rate: FloatArray | None = None  # j,t  samples/s at the reference width, where the scheduler's table is wrong

    def finished_jobs(self) -> FinishedJobs:
        """The jobs that finished, by their true speeds, whatever the scheduler believed."""
        return finished_jobs(self.state, self.true_rate)

    @property
    def profiling_share(self) -> float:
        """The cost of profiling as a part of the GPU-seconds that jobs held."""
        return self.profiling_gpu_s / self.state.busy_gpu_s if self.state.busy_gpu_s > 0 else 0.0


def simulate(
    setup: Setup,
    journal: Path | None = None,
    tick: Callable[[State], None] | None = None,
    watch: Journal | None = None,
) -> Result:
    """Run to the end. Every job must be able to run somewhere: see `impossible`.

    `watch` receives the same records as the journal.
    """
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    loop = loop_for(setup.policy)
    if setup.all_new and setup.sensing is Sensing.TABLE:
        raise InputError("speeds of new models are learnt while jobs run; choose what is sensed, such as three-layer")
    if setup.all_new and not loop.profiling:
        raise InputError(f"{setup.policy.name} decides {loop.decides}, which needs the speeds of models; leave it out")
    if setup.world.profiling_s and not loop.profiling:
        raise InputError(f"{setup.policy.name} decides {loop.decides}, where profiling is not simulated; leave it out")
    if setup.changes and (setup.world.profiling_s or not loop.changes):
        raise InputError(
            "a cluster that changes is simulated for policies that decide rounds, without a cost of profiling"
        )
    state = State(setup.cluster, setup.estimator(), setup.tenant_weight)
    with open_new(journal) as file:
        writer: Journal = NoJournal() if file is None else JournalWriter(file, setup.header())
        journals = writer if watch is None else BothJournals(writer, watch)
        read = journal is not None or watch is not None
        truth = setup.truth()
        stage = Stage(truth, setup.settings, state, journals, tick, read, setup.changes)
        done, profiling_gpu_s = loop.run(stage)
    measured_gpu_s = profiling_gpu_s + state.trials.gpu_s
    believed = not setup.all_new and not setup.world.declared_speeds
    true_rate = None if believed else _true_rates(truth, state)
    return Result(state, done, time.process_time() - cpu_s, time.perf_counter() - wall_s, measured_gpu_s, true_rate)


def _true_rates(truth: Truth, state: State) -> FloatArray:
    """j,t  Samples/s at the reference width on the fewest nodes."""
    true_spec = {spec.id: spec for spec in truth.jobs}
    return np.array([allowed_rates(true_spec[spec.id], truth.cluster, truth.rates) for spec in state.specs])


@dataclass(frozen=True, slots=True)
class BothJournals:
    """Writes the same records to two journals."""

    first: Journal
    second: Journal

    def event(self, event: Event) -> None:
        self.first.event(event)
        self.second.event(event)

    def decision(self, decision: Decision) -> None:
        self.first.decision(decision)
        self.second.decision(decision)


@contextmanager
def open_new(path: Path | None) -> Iterator[IO[str] | None]:
    """A new journal file, which is removed if the run is refused; nothing without a path."""
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the journal: {error.strerror}", path=str(path)) from None
    try:
        with file:
            yield file
    except InputError:
        path.unlink(missing_ok=True)
        raise


def check_tenants(setup: Setup) -> None:
    """Refuse a weight or declared speeds for a tenant that has no jobs."""
    tenants = dict.fromkeys(job.tenant for job in setup.trace.jobs)
    named = [*((name, "a weight is") for name in setup.tenant_weight)]
    named += [(name, "declared speeds are") for name, _ in setup.world.declared_speeds]
    for name, what in named:
        if name not in tenants:
            hint = did_you_mean(name, tenants)
            raise InputError(f'{what} set for tenant "{name}", which has no jobs; {hint}')


def doubts(setup: Setup) -> tuple[str, ...]:
    """Warnings about inputs that may be mistakes, for readers of the results."""
    return (*_short_jobs(setup), *setup.used_profile().doubts())


def _short_jobs(setup: Setup) -> tuple[str, ...]:
    """A warning if many jobs end inside their first round, so that GPUs are idle until its end."""
    round_s, jobs = setup.settings.round_s, setup.trace.jobs
    if setup.settings.when is not When.ROUNDS:
        return ()
    rates = TableEstimator(setup.used_profile(), setup.cluster)
    step_s: dict[tuple[str, int, tuple[str, ...]], float | None] = {}
    short = 0
    for job in jobs:
        key = (job.model, job.gpus, job.types)
        if key not in step_s:
            step_s[key] = seconds_per_step(rates, setup.cluster, *key)
        per_step = step_s[key]
        short += per_step is not None and job.steps is not None and job.steps * per_step < round_s
    if 2 * short <= len(jobs):
        return ()
    note = (
        f"{short} of {counted(len(jobs), 'job')} are shorter than a round of {format_duration(round_s)}, and GPUs that become "
        "free wait for the next one; --round makes rounds shorter, --decide events decides inside them"
    )
    return (note,)


def impossible(setup: Setup) -> dict[str, str]:
    """Job id -> why it can never run on this cluster, even after its changes."""
    estimators = [setup.estimator().for_cluster(cluster) for cluster in setup.clusters()]
    reasons = {}
    for job in setup.trace.jobs:
        if not any(allowed_rates(job, *known).any() for known in zip(setup.clusters(), estimators, strict=True)):
            reasons[job.id] = _why(job, setup)
    return reasons


def _why(job: JobSpec, setup: Setup) -> str:
    cluster, profile = setup.cluster, setup.profile
    allowed = allowed_types(job, cluster)
    if not allowed:
        have = ", ".join(cluster.types)
        return f"it allows only {', '.join(job.types)}, the cluster has {have} (--alias {job.types[0]}=... reads it as another)"
    widest = max(int(cluster.capacity[t]) for t in allowed)
    if job.gpus > widest:
        return f"it needs {job.gpus} GPUs of one type, the largest type that it may use has {widest}"
    need = profile.facts_of(job.model).memory_gib
    most = max(float(cluster.memory_gib[t]) for t in allowed)
    if need > most:
        return f"{job.model} needs {need:g} GiB per GPU, the largest GPU that it may use has {most:g}"
    types = ", ".join(cluster.types[t] for t in allowed)
    return f"the profile has no speed of {job.model} at {job.gpus} GPUs on any of {types}"


def without_impossible(setup: Setup, *, skip: bool) -> tuple[Trace, int]:
    """The trace without jobs that can never run, and the number of these; unless `skip`, an error that names them."""
    reasons = impossible(setup)
    if not reasons:
        return setup.trace, 0
    if not skip:
        shown = "\n".join(f"  job {id_}: {why}" for id_, why in list(reasons.items())[:10])
        more = f"\n  ... and {len(reasons) - 10} more" if len(reasons) > 10 else ""
        raise ImpossibleError(
            f"{len(reasons)} of {len(setup.trace.jobs)} jobs can never run on this cluster; change the cluster or the trace, "
            f"or leave them out with --skip-impossible\n{shown}{more}"
        )
    left = tuple(job for job in setup.trace.jobs if job.id not in reasons)
    return replace(setup.trace, jobs=left), len(reasons)
