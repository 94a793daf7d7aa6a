"""The jobs of a comparison: read from a file or generated, for a seed and a load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.rates.profile import Profile
from fairlead.traces.formats import Trace, read_trace
from fairlead.traces.generate import generate
from fairlead.traces.stats import trace_stats

# (load or None, seed) -> jobs
Workload = Callable[[float | None, int], Trace]

GENERATE_JOBS = 100
LOAD = 0.8


@dataclass(frozen=True, slots=True)
class Generated:
    """The options of `--generate`, on top of the defaults of `fairlead trace generate`."""

    load: float | None = None  # None: LOAD, unless the comparison sets it
    more: dict[str, Any] = field(default_factory=dict)


def from_file(path: str, profile: Profile, cluster: Cluster, jobs: int | None, options: dict[str, Any]) -> Workload:
    """The first `jobs` of a trace in any known format; for a load, its arrival times are scaled."""

    @cache
    def read(seed: int) -> Trace:
        return _shortened(read_trace(path, profile=profile, seed=seed, **options), profile, jobs)

    def build(load: float | None, seed: int) -> Trace:
        return read(seed) if load is None else at_load(read(seed), profile, cluster, load)

    return build


def from_trace(trace: Trace, profile: Profile, cluster: Cluster, jobs: int | None) -> Workload:
    """The same for a trace that has been read or generated, which is the same for every seed."""
    first = _shortened(trace, profile, jobs)
    return lambda load, seed: first if load is None else at_load(first, profile, cluster, load)


def _shortened(trace: Trace, profile: Profile, jobs: int | None) -> Trace:
    trace = replace(trace, notes=(*trace.notes, f'speeds by GPU type from profile "{profile.name}"'))
    if jobs is None or jobs >= len(trace.jobs):
        return trace
    note = f"only the first {jobs} of {len(trace.jobs)} jobs (--jobs)"
    return replace(trace, jobs=trace.jobs[:jobs], notes=(*trace.notes, note))


def from_generator(profile: Profile, cluster: Cluster, jobs: int | None, spec: Generated) -> Workload:
    def build(load: float | None, seed: int) -> Trace:
        count = GENERATE_JOBS if jobs is None else jobs
        chosen = next(value for value in (load, spec.load, LOAD) if value is not None)
        trace = generate(cluster, profile, jobs=count, load=chosen, seed=seed, **spec.more)
        if load is None or spec.load is None:
            return trace
        return replace(trace, notes=(*trace.notes, f"--loads overrides load={spec.load:g} of --generate"))

    return build


def at_load(trace: Trace, profile: Profile, cluster: Cluster, load: float) -> Trace:
    """The same jobs with arrival times scaled so that they offer `load`."""
    own = trace_stats(trace, profile, cluster).load
    if not own:
        raise InputError(f"{trace.name}: its arrivals span no time, so it has no load to change; leave --loads out")
    factor = own / load
    jobs = tuple(replace(job, arrival_s=job.arrival_s * factor) for job in trace.jobs)
    note = f"arrival times x {factor:.4g}, so that the load is {load:g} instead of {own:.3g}"
    return replace(trace, jobs=jobs, notes=(*trace.notes, note))
