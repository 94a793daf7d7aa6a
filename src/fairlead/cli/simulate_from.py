"""`fairlead simulate --from`: opens the origin, and applies the options that may still change it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.cli.options import Importing, parse_parameters
from fairlead.cli.output import progress
from fairlead.cli.world import WorldOptions
from fairlead.model.errors import InputError
from fairlead.model.units import format_duration, parse_duration

if TYPE_CHECKING:
    from fairlead.model.jobs import JobSpec
    from fairlead.policies.policy import Policy
    from fairlead.studies.runs.origin import Origin
    from fairlead.studies.runs.simulate import Result

# Options that replace the origin's settings and world; the others are fixed by the run that led to the origin.
_SETTINGS = {
    "round_": "round_s",
    "decide": "when",
    "min_run": "min_run_s",
    "placer": "placer",
    "measure_new": "trial_s",
}
_WORLD = {
    "server_factors": "server_factor",
    "job_server_factors": "job_server_factor",
    "mtbf": "mtbf_s",
    "repair": "repair_s",
    "checkpoint_every": "checkpoint_s",
    "length_error": "length_error",
    "report_every": "report_s",
    "sensing_noise": "sensing_noise",
    "seed": "seed",
}
_FIXED = {
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
    place: str,
    options_set: set[str],
    policy: str | None,
    param: list[str],
    trace: str | None,
    importing: Importing,
    rules: WorldOptions,
    seed: int,
    unknown_lasts: str | None,
    until: str | None,
    journal: str | None,
) -> tuple[Origin, Policy, Result, list[str]]:
    """The origin, the policy, the result and the assumptions of a continued run.

    `options_set` has the options on the command line.
    """
    from fairlead.studies.runs.origin import continue_from

    fixed = [option for name, option in _FIXED.items() if name in options_set]
    if fixed:
        raise InputError(f"{', '.join(fixed)}: this is fixed by the run that --from continues; leave it out")
    chosen = _policy(policy, param)
    origin = _open(place, chosen)
    chosen = chosen or origin.policy.with_parameters(parse_parameters(param, origin.policy.parameters))
    new_settings, new_world = rules.settings(), rules.world(seed)
    settings = replace(
        origin.settings(),
        **{name: getattr(new_settings, name) for option, name in _SETTINGS.items() if option in options_set},
    )
    world = replace(
        origin.world(seed),
        **{name: getattr(new_world, name) for option, name in _WORLD.items() if option in options_set},
    )
    future = origin.future if trace is None else _read(origin, trace, importing, rules, seed)
    jobs = origin.state.jobs + len(future)
    with progress(f"simulating {chosen.name}", jobs) as report:
        result = continue_from(
            origin,
            chosen,
            settings,
            world,
            future=future,
            unknown_lasts_s=None if unknown_lasts is None else parse_duration(unknown_lasts),
            until_s=None if until is None else parse_duration(until),
            journal=Path(journal) if journal else None,
            tick=lambda state: report(state.ended),
        )
    return origin, chosen, result, _assumptions(origin, len(future), unknown_lasts, result)


def _policy(name: str | None, param: list[str]) -> Policy | None:
    from fairlead.policies import as_round_policy
    from fairlead.studies.policy_lab.plugins import load_policy

    if name is None:
        return None
    policy = as_round_policy(load_policy(name))
    return policy.with_parameters(parse_parameters(param, policy.parameters))


def _open(place: str, policy: Policy | None) -> Origin:
    from fairlead.studies.runs.origin import journal_origin, service_origin

    path, time_s = Path(place), None
    if not path.exists() and "@" in place:
        name, _, text = place.rpartition("@")
        path, time_s = Path(name), parse_duration(text)
    if path.is_file():
        return journal_origin(path, time_s, policy)
    if not path.is_dir():
        raise InputError(
            "there is no such file or directory; expected FILE.jsonl, FILE.jsonl@TIME or a state directory", path=place
        )
    if time_s is not None:
        raise InputError("a service can only be continued from its last record; a time needs a journal", path=place)
    from fairlead.service.store.directory import read_directory

    return service_origin(path.name, *read_directory(path))


def _read(origin: Origin, trace: str, importing: Importing, rules: WorldOptions, seed: int) -> tuple[JobSpec, ...]:
    from fairlead.studies.runs.origin import arrivals

    profile = importing.profile() if importing.throughputs else origin.header.profile
    return arrivals(origin, importing.read(trace, profile, seed).jobs, skip_impossible=rules.skip_impossible)


def _assumptions(origin: Origin, later: int, unknown_lasts: str | None, result: Result) -> list[str]:
    begins = (
        f"begins from {origin.name} at {format_duration(origin.state.now_s)}, with {origin.state.active:,} active jobs"
    )
    notes = [f"{begins} and {later:,} later arrivals"]
    if unknown_lasts is not None:
        notes.append(f"jobs of unknown length run for another {unknown_lasts} at their best rate")
    return [*notes, *result.run.notes]
