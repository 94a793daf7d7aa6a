"""The starting point of a simulation that continues a run: a journal at some time, or the state of a live service."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairlead.model.allocation import Level
from fairlead.model.decision import Decision
from fairlead.model.errors import ImpossibleError, InputError
from fairlead.model.events import Arrived, Finished, Forgotten
from fairlead.model.jobs import JobSpec
from fairlead.model.units import format_duration
from fairlead.policies import as_round_policy
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import allowed_rates
from fairlead.rounds.journal import Header, JournalReader, JournalWriter, is_snapshot
from fairlead.rounds.loop import Carried, Journal, Settings
from fairlead.rounds.state import State
from fairlead.sim.truth import World
from fairlead.studies.journals.folding import (
    carried_at,
    carried_of,
    open_state,
    policy_of,
    records_until,
    settings_at,
    settings_of,
    state_at,
)
from fairlead.studies.journals.worlds import world_of
from fairlead.studies.runs.from_state import Lengths, check_rounds, header_from, simulate_from
from fairlead.studies.runs.simulate import Result, open_new

SAME = 1e-9  # relative: a length that was computed from samples


@dataclass(frozen=True)
class Origin:
    """A folded state, and what else is known about the run."""

    name: str
    header: Header
    state: State
    policy: Policy  # the one that decided there
    settings: Settings  # with which it decided
    future: tuple[JobSpec, ...] = ()  # arrivals after the state, with their true lengths
    true_steps: Mapping[str, float] = field(default_factory=dict)  # job -> its length, if later records show it
    carried: Carried | None = None  # the policy's memory, if it is known
    journal: Path | None = None

    def world(self, seed: int = 0) -> World:
        """The world that was simulated so far, without the measuring of new models, which cannot start from a state."""
        return replace(world_of(self.header) or World(seed=seed), profiling_s=0.0)


def journal_origin(path: Path, time_s: float | None = None, policy: Policy | None = None) -> Origin:
    """The origin at a time of a journal, or of a snapshot. Memory is carried over if `policy` is the journal's own, or None."""
    header = JournalReader(path).header()
    if is_snapshot(path):
        if time_s is not None:
            raise InputError("a snapshot is of one time only; leave out the time after @", path=str(path))
        return service_origin(path.name, header, open_state(header))
    if header.more.get("level") == Level.TASKS:
        raise InputError("this journal is of single tasks; only runs of rounds can be continued", path=str(path))
    own, carried = policy or as_round_policy(policy_of(header)), None
    if own.name == header.policy and _as_read(own.parameters) == _as_read(header.parameters):
        state, own, settings, carried = carried_at(path, own, time_s)
    else:
        state, settings = state_at(path, time_s), settings_at(path, time_s)
    return Origin(path.name, header, state, own, settings, *_later(path, state), carried, path)


def _as_read(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as a journal has them, where a tuple is a list."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in parameters.items()}


def service_origin(name: str, header: Header, state: State) -> Origin:
    """The state of a live service after its last record, with what its policy remembers, if the header has it."""
    policy = as_round_policy(policy_of(header))
    carried = carried_of(header, policy, state)
    return Origin(name, header, state, policy, settings_of(header), carried=carried)


def arrivals(origin: Origin, jobs: Iterable[JobSpec], *, skip_impossible: bool = False) -> tuple[JobSpec, ...]:
    """Jobs of a trace that arrive after the origin.

    A journal and its trace share a clock, so jobs that had arrived are left out. For a live service, time counts from now.
    """
    state, jobs = origin.state, list(jobs)
    if world_of(origin.header) is None:
        jobs = [replace(spec, arrival_s=state.now_s + spec.arrival_s) for spec in jobs]
    later = [spec for spec in jobs if spec.id not in state.position and spec.arrival_s >= state.now_s]
    if jobs and not later:
        raise InputError(
            f"none of the {len(jobs)} jobs of the trace arrives after {state.now_s:g} s, where the simulation begins; "
            "add later jobs, choose an earlier time, or leave out --trace"
        )
    possible = [spec for spec in later if allowed_rates(spec, state.cluster, state.estimator).any()]
    if len(possible) < len(later) and not skip_impossible:
        names = ", ".join(spec.id for spec in later if spec not in possible)
        raise ImpossibleError(
            f"jobs can never run on this cluster, with the speeds that the run knew: {names}; change the trace, or leave "
            "them out with --skip-impossible"
        )
    return tuple(possible)


def continue_from(
    origin: Origin,
    policy: Policy,
    settings: Settings,
    world: World,
    *,
    future: tuple[JobSpec, ...] | None = None,
    unknown_lasts_s: float | None = None,
    until_s: float | None = None,
    journal: Path | None = None,
    tick: Callable[[State], None] | None = None,
) -> Result:
    """`simulate_from` an origin. Memory is carried over if only later arrivals change.

    The journal then also contains the records up to the origin, if there are any; otherwise it begins from the state.
    """
    check_rounds(origin.state)
    same_policy = (policy.name, policy.parameters) == (origin.policy.name, origin.policy.parameters)
    carried = origin.carried if same_policy and settings == origin.settings else None
    if journal is not None and origin.journal is not None and journal.resolve() == origin.journal.resolve():
        raise InputError("the journal that is continued cannot be written over; choose another name", path=str(journal))
    with open_new(journal) as file:
        writer: Journal | None = None
        if file is not None and carried is not None and origin.journal is not None:
            writer = JournalWriter(file, origin.header)
            _repeat(origin.journal, origin.state.now_s, writer)
        elif file is not None:
            writer = JournalWriter(file, header_from(origin.header, origin.state, policy, settings, world, carried))
        return simulate_from(
            origin.state,
            policy,
            settings,
            world,
            future=origin.future if future is None else future,
            lengths=_lengths(origin, unknown_lasts_s),
            carried=carried,
            faults_since_s=None if world_of(origin.header) is None else 0.0,
            until_s=until_s,
            journal=writer,
            tick=tick,
        )


def _repeat(journal: Path, until_s: float, writer: JournalWriter) -> None:
    for record in records_until(journal, until_s):
        writer.decision(record) if isinstance(record, Decision) else writer.event(record)


def _later(path: Path, state: State) -> tuple[tuple[JobSpec, ...], dict[str, float]]:
    """Arrivals that are recorded after the state, and lengths that differ from the declared ones."""
    reader, later, true_steps = JournalReader(path), list[JobSpec](), dict[str, float]()
    begin = open_state(reader.header())
    specs, last_s = list(begin.specs), begin.now_s  # specs by position
    for record in reader.records():
        last_s = record.time_s
        if isinstance(record, Arrived):
            specs.append(record.spec)
            if record.time_s > state.now_s:
                later.append(record.spec)
        elif isinstance(record, Forgotten):
            gone = set(record.jobs.tolist())
            specs = [spec for j, spec in enumerate(specs) if j not in gone]
        elif isinstance(record, Finished):
            for j, samples in zip(record.jobs.tolist(), record.samples.tolist(), strict=True):
                spec = specs[j]
                steps = samples / state.estimator.samples_per_step(spec.model, spec.gpus)
                if spec.steps is None or not math.isclose(steps, spec.steps, rel_tol=SAME):
                    true_steps[spec.id] = steps
    if last_s < state.now_s and state.active:
        end, time = format_duration(last_s), format_duration(state.now_s)
        raise InputError(
            f"the journal ends at {end}, when jobs were active, and does not show what they did until {time}; "
            "choose an earlier time, or leave it out",
            path=str(path),
        )
    future = (replace(spec, steps=true_steps.get(spec.id, spec.steps)) for spec in later)
    return tuple(future), true_steps


def _lengths(origin: Origin, unknown_lasts_s: float | None) -> Lengths:
    """The lengths that later records show; a job of unknown length runs `unknown_lasts_s` longer at its best rate."""
    estimator, cluster = origin.state.estimator, origin.state.cluster

    def steps(spec: JobSpec, done: float) -> float | None:
        if spec.id in origin.true_steps or spec.steps is not None or unknown_lasts_s is None:
            return origin.true_steps.get(spec.id)
        samples_per_s = float(allowed_rates(spec, cluster, estimator).max())
        return done + unknown_lasts_s * samples_per_s / estimator.samples_per_step(spec.model, spec.gpus)

    return steps
