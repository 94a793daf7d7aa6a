"""`fairlead.simulate(from_=...)`: a run that continues from a journal, a snapshot or a service's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.library.origins import open_origin
from fairlead.library.own_policies import AnyReference, load
from fairlead.library.reading import File, Reading, build, known
from fairlead.library.rules import Duration, WorldRules
from fairlead.library.run_tables import job_table, summary_of, tenant_table
from fairlead.library.table import ResultTable
from fairlead.model.errors import InputError
from fairlead.model.lifecycle import Phase
from fairlead.model.units import format_duration, parse_duration
from fairlead.policies import as_round_policy
from fairlead.policies.parameter_text import parse_parameters
from fairlead.studies.runs.origin import Origin, arrivals, continue_from
from fairlead.studies.runs.simulate import Result
from fairlead.traces.formats import Trace

if TYPE_CHECKING:
    from fairlead.model.jobs import JobSpec
    from fairlead.policies.policy import Policy

# Options that replace the origin's settings and world; the others are fixed by the run that led to the origin.
SETTINGS = {
    "round": "round_s",
    "decide": "when",
    "min_run": "min_run_s",
    "preemption_limit": "preemption_gpu_s",
    "tenant_preemption_limit": "tenant_preemption_gpu_s",
    "placer": "placer",
    "measure_new": "trial_s",
    "check_share": "check_share",
}
WORLD = {
    "server_factors": "server_factor",
    "job_server_factors": "job_server_factor",
    "mtbf": "mtbf_s",
    "repair": "repair_s",
    "checkpoint_every": "checkpoint_s",
    "length_error": "length_error",
    "report_every": "report_s",
    "sensing_noise": "sensing_noise",
    "start_cost": "start_s",
    "notice": "notice_s",
}
FIXED = {
    "cluster": "--cluster",
    "cluster_changes": "--cluster-changes",
    "restart_cost": "--restart-cost",
    "tenant_weight": "--tenant-weight",
    "sensing": "--sensing",
    "all_new": "--all-new",
    "profiling_cost": "--profiling-cost",
    "declared_speeds": "--declared-speeds",
    "task": "--task",
    "switching": "--switching",
}


def simulate_onwards(
    place: File,
    options: Mapping[str, Any],
    *,
    cluster: object = None,
    policy: AnyReference | None = None,
    param: Mapping[str, Any] | Sequence[str] = (),
    trace: Trace | File | None = None,
    seed: int | None = None,
    unknown_lasts: Duration | None = None,
    until: Duration | None = None,
    journal: File | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ContinuedRun:
    """Continue from an origin; `options` has just those options of files and of the world that are set."""
    given = known(options, Reading, WorldRules)
    fixed = [option for name, option in FIXED.items() if name in given or (name == "cluster" and cluster is not None)]
    if fixed:
        raise InputError(f"{', '.join(fixed)}: this is fixed by the run that --from continues; leave it out")
    chosen = None if policy is None else _with(as_round_policy(load(policy)), param)
    origin = open_origin(str(place), chosen)
    chosen = chosen or _with(origin.policy, param)
    rules, seed_or_0 = build(WorldRules, given), 0 if seed is None else seed
    settings, world = rules.settings(), rules.world(seed_or_0)
    new_world = {name: getattr(world, name) for option, name in WORLD.items() if option in given}
    new_world |= {} if seed is None else {"seed": seed}
    future = origin.future if trace is None else _arrivals(origin, trace, given, seed_or_0)
    until_s = None if until is None else parse_duration(until, "--until")
    _check_work(origin, future, until_s)
    total = origin.state.jobs + len(future)
    result = continue_from(
        origin,
        chosen,
        replace(origin.settings, **{name: getattr(settings, name) for o, name in SETTINGS.items() if o in given}),
        replace(origin.world(seed_or_0), **new_world),
        future=future,
        unknown_lasts_s=None if unknown_lasts is None else parse_duration(unknown_lasts, "--unknown-lasts"),
        until_s=until_s,
        journal=None if journal is None else Path(journal),
        tick=None if progress is None else lambda state: progress(state.ended, total),
    )
    notes = _assumptions(origin, len(future), unknown_lasts, result)
    return ContinuedRun(origin, chosen.name, result, tuple(notes), None if journal is None else Path(journal))


@dataclass(frozen=True, eq=False)
class ContinuedRun:
    """A finished simulation that began from a state. Its tables cover the jobs before and after that."""

    origin: Origin
    policy: str
    result: Result
    assumptions: tuple[str, ...]  # what it began from, and what was assumed
    journal: Path | None

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The numbers that `fairlead simulate --from -o json` prints; docs/metrics.md defines each."""
        return summary_of(self.policy, self.result, self.assumptions)

    @cached_property
    def jobs(self) -> ResultTable:
        """One row per job, in the order of arrival."""
        return job_table(f"{self.policy}: jobs", self.result)

    @cached_property
    def tenants(self) -> ResultTable:
        """One row per tenant."""
        return tenant_table(f"{self.policy}: tenants", self.summary)

    def __repr__(self) -> str:
        return f"<Run of {self.policy} from {self.origin.name} on: {self.result.state.jobs:,} jobs>"


def _with(policy: Policy, param: Mapping[str, Any] | Sequence[str]) -> Policy:
    return policy.with_parameters(param if isinstance(param, Mapping) else parse_parameters(list(param), policy))


def _check_work(origin: Origin, future: tuple[JobSpec, ...], until_s: float | None) -> None:
    """Refuse a simulation in which nothing could happen."""
    state = origin.state
    now = format_duration(state.now_s)
    if not state.active and not future:
        held = "; held jobs stay held" if (state.phase[: state.jobs] == Phase.HELD).any() else ""
        raise InputError(
            f"there is nothing to simulate: at {now} no job is active, and none arrives later{held}; "
            "choose an earlier time, or add jobs with --trace",
            path=origin.name,
        )
    if until_s is not None and until_s <= state.now_s:
        raise InputError(f"--until {format_duration(until_s)} is not after {now}, where the simulation begins")


def _arrivals(origin: Origin, trace: Trace | File, given: Mapping[str, Any], seed: int) -> tuple[JobSpec, ...]:
    reading = build(Reading, given)
    if not isinstance(trace, Trace):
        profile = reading.profile() if reading.throughputs else origin.header.profile
        trace = reading.read(trace, profile, seed)
    return arrivals(origin, trace.jobs, skip_impossible=bool(given.get("skip_impossible")))


def _assumptions(origin: Origin, later: int, unknown_lasts: Duration | None, result: Result) -> list[str]:
    begins = (
        f"begins from {origin.name} at {format_duration(origin.state.now_s)}, with {origin.state.active:,} active jobs"
    )
    notes = [f"{begins} and {later:,} later arrivals"]
    if unknown_lasts is not None:
        notes.append(f"jobs of unknown length run for another {unknown_lasts} at their best rate")
    return [*notes, *result.run.notes]
