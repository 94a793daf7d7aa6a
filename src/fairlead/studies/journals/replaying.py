"""The decisions of a journal made again, with the same or another policy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from fairlead.model.allocation import Level
from fairlead.model.decision import Decision
from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.model.events import Arrived, Event, Finished, Served
from fairlead.policies.policy import AnyPolicy, Policy, TaskPolicy
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.journal import CARRIES_MEMORY, JournalReader
from fairlead.rounds.loop import Settings
from fairlead.rounds.records import Record
from fairlead.rounds.replay import replay, same, same_reasons
from fairlead.sim.tasks.engine import run_tasks
from fairlead.sim.truth import Truth, World
from fairlead.studies.journals.folding import carried_of, consistent, open_state, policy_of, settings_of
from fairlead.studies.journals.worlds import world_of

SAME = 1e-6  # relative, for the GPUs held


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a journal's decisions compare with those that a policy makes now from the same events."""

    decisions: int
    same: int
    first_different_s: float | None
    not_compared: int = 0  # decisions whose policy remembered rounds before the journal begins


def replay_journal(path: Path, policy: AnyPolicy | None = None) -> Replayed:
    """Decide again; by default with the journal's own policy, whose decisions must then all be the same."""
    reader = JournalReader(path)
    header = reader.header()
    chosen, settings = policy or policy_of(header), settings_of(header)
    tasks = header.more.get("level") == Level.TASKS
    if tasks != isinstance(chosen, TaskPolicy):
        raise InputError(
            f"the journal's policy decides {'single tasks' if tasks else 'rounds'} and {chosen.name} does not; "
            "its decisions cannot be compared",
            path=str(path),
        )
    if isinstance(chosen, TaskPolicy):
        return _replay_tasks(reader, chosen, settings)
    return _replay_rounds(reader, chosen, settings, follow=policy is None)


def _replay_rounds(reader: JournalReader, policy: Policy, settings: Settings, *, follow: bool) -> Replayed:
    """Decide every round again."""
    decisions = equal = 0
    first: float | None = None
    header, seen = reader.header(), Counter[bool]()
    with consistent(reader.path):
        state, records = open_state(header), _counted(reader.records(), seen)
        known = not header.more.get(CARRIES_MEMORY)
        carried = carried_of(header, policy, state) if follow else None
        memory = None if carried is None else carried.memory
        for recorded, again in replay(records, state, policy, settings, follow=follow, known=known, memory=memory):
            decisions += 1
            if same(recorded, again) and (not follow or same_reasons(recorded, again)):
                equal += 1
            elif first is None:
                first = recorded.time_s
    return Replayed(decisions, equal, first, seen[True] - decisions)


def _counted(records: Iterable[Record], seen: Counter[bool]) -> Iterator[Record]:
    """The records; `seen` counts those that are decisions."""
    for record in records:
        seen[isinstance(record, Decision)] += 1
        yield record


def _replay_tasks(reader: JournalReader, policy: TaskPolicy, settings: Settings) -> Replayed:
    """Run all tasks again and compare what each job holds in each round."""
    header, records = reader.header(), list(reader.records())
    state = open_state(header)
    specs = [record.spec for record in records if isinstance(record, Arrived)]
    for record in records:
        if isinstance(record, Finished):  # only the end of a job shows its true length
            for j, samples in zip(record.jobs.tolist(), record.samples.tolist(), strict=True):
                steps = samples / state.estimator.samples_per_step(specs[j].model, specs[j].gpus)
                specs[j] = replace(specs[j], steps=steps)
    truth = Truth(
        specs,
        header.cluster,
        TableEstimator(header.profile, header.cluster, restart_s=header.restart_s),
        world_of(header) or World(),
    )
    again = _Served()
    run_tasks(truth, state.estimator, policy, settings, state, again)
    recorded = [record for record in records if isinstance(record, Served)]
    pairs = zip_longest(recorded, again.events[: len(recorded)])
    different = [one.time_s for one, other in pairs if not _same_service(one, other)]
    return Replayed(len(recorded), len(recorded) - len(different), different[0] if different else None)


class _Served:
    """Keeps the records of service by single tasks."""

    def __init__(self) -> None:
        self.events: list[Served] = []

    def event(self, event: Event) -> None:
        if isinstance(event, Served):
            self.events.append(event)

    def decision(self, decision: Decision) -> None:
        raise BrokenInvariantError(f"a round was decided at {decision.time_s} s in a run without rounds")


def _same_service(one: Served, other: Served | None) -> bool:
    return (
        other is not None
        and math.isclose(one.time_s, other.time_s, rel_tol=SAME)
        and np.array_equal(one.jobs, other.jobs)
        and np.allclose(one.gpus, other.gpus, rtol=SAME, atol=SAME)
    )
