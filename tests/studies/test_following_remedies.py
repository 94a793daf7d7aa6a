"""Every policy: no waiting job is without a reason, and a job whose remedy is followed starts by the time stated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from building import ROUND_POLICIES, job, setup
from fairlead.model.decision import Decision
from fairlead.model.events import Cancelled, Event, Held
from fairlead.model.explanation import RemedyKind
from fairlead.model.lifecycle import Phase
from fairlead.model.outcomes import Reason
from fairlead.numerics.random import stream
from fairlead.policies import find_round_policy
from fairlead.policies.policy import Policy
from fairlead.rounds.journal import JournalReader, NoJournal
from fairlead.rounds.loop import When, run
from fairlead.rounds.state import State
from fairlead.sim.rounds.engine import SimEngine
from fairlead.studies.explaining.candidates import Candidate, candidates
from fairlead.studies.explaining.remedies import explain_with_remedies
from fairlead.studies.journals.folding import open_state
from fairlead.studies.runs.origin import journal_origin
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.what_if.changes import CancelJob, HoldJob, SubmitJobs

JOBS = 2  # waiting jobs that are explained in each world


class _Started(Exception):  # noqa: N818
    pass


@dataclass
class Followed:
    """A world in which an owner cancels or holds jobs at a time, as the engine of a service would report it."""

    engine: SimEngine
    at_s: float
    cancel: list[int]
    hold: list[int]
    is_done: bool = False

    def now(self) -> float:
        return self.engine.now()

    def wait(self, until_s: float) -> list[Event]:
        if self.is_done or until_s < self.at_s:
            return self.engine.wait(until_s)
        if events := self.engine.wait(self.at_s):
            return events
        self.is_done = True
        self.engine._ended += len(self.cancel) + len(self.hold)
        events = [Cancelled(self.at_s, np.array(self.cancel))] if self.cancel else []
        if self.hold:
            samples = [self.engine._done_at(j, self.at_s) for j in self.hold]
            jobs = np.array(self.hold)
            events.append(Held(self.at_s, jobs, self.engine._leave(jobs, samples)))
        return events

    def apply(self, decision: Decision) -> None:
        self.engine.apply(decision)


def start_when_followed(made: Setup, policy: Policy, at_s: float, candidate: Candidate) -> float:
    """Run the whole world from its beginning, do what the remedy says at its time, and see when the job starts."""
    new = [spec for change in candidate.changes if isinstance(change, SubmitJobs) for spec in change.jobs]
    jobs = [*made.trace.jobs, *(replace(spec, arrival_s=at_s) for spec in new)]
    ordered = tuple(sorted(jobs, key=lambda spec: (spec.arrival_s, spec.id)))
    made = replace(made, trace=replace(made.trace, jobs=ordered))
    position = {spec.id: j for j, spec in enumerate(ordered)}
    cancel = [position[change.job] for change in candidate.changes if isinstance(change, CancelJob)]
    hold = [position[change.job] for change in candidate.changes if isinstance(change, HoldJob)]
    state = State(made.cluster, made.estimator(), made.tenant_weight)
    target = position[candidate.starts]

    def tick(state: State) -> None:
        if state.now_s >= at_s and state.held_gpus[target]:
            raise _Started

    engine = Followed(SimEngine(made.truth()), at_s, cancel, hold)
    with pytest.raises(_Started):
        run(engine, state, policy, made.settings, NoJournal(), tick, explain=False)
    return state.now_s


def crowded_world(policy: Policy, seed: int, when: When) -> Setup:
    """Jobs that want more than there is, many of them on one type only, without surprises; rounds of six minutes."""
    random = stream(seed, "remedies")
    jobs = [
        job(
            f"j{i}",
            gpus := int(random.choice((1, 2, 2, 4))),
            gpus * float(random.uniform(1000.0, 9000.0)),
            at=float(random.uniform(0.0, 1500.0)),
            model=str(random.choice(("fast", "even"))),
            tenant=str(random.choice(("ann", "bob"))),
            types=(("v100",), ("v100",), ("v100", "p100"), ())[int(random.integers(4))],
        )
        for i in range(12)
    ]
    min_run_s = float(random.choice((0.0, 600.0)))
    return setup(jobs, "v100:4,p100:4,k80:4", policy, restart_s=20.0, min_run_s=min_run_s, when=when)


def crowded_s(path: Path) -> float:
    """A time between two records at which many jobs wait, a while after a decision."""
    state, best, waiting, last_s = open_state(JournalReader(path).header()), 0.0, 0, 0.0
    for record in JournalReader(path).records():
        if record.time_s > last_s + 2.0:
            jobs = state.active_jobs
            now = int(np.count_nonzero(state.phase[jobs] == Phase.WAITING))
            if now > waiting:
                best, waiting = last_s + 1.0, now
        state.fold(record)
        last_s = record.time_s
    return best


def follow_all(policy: Policy, seed: int, when: When, folder: Path) -> list[RemedyKind]:
    """Explain the first waiting jobs of a crowded moment, and follow each remedy that is offered."""
    made, path = crowded_world(policy, seed, when), folder / f"run-{seed}.jsonl"
    simulate(made, path)
    at_s = crowded_s(path)
    origin = journal_origin(path, at_s, policy)
    state, kinds = origin.state, list[RemedyKind]()
    waiting = [j for j in state.active_jobs.tolist() if state.phase[j] == Phase.WAITING]
    for j in waiting:
        is_new = state.arrival_s[j] > at_s - made.settings.round_s
        assert state.reason[j] != Reason.UNDECIDED or is_new, f"{state.specs[j].id} has no reason"
    for j in waiting[:JOBS]:
        answer = explain_with_remedies(origin, state.specs[j].id)
        assert answer.sentence
        assert answer.unchecked is None
        for remedy in answer.remedies:
            offer = next(one for one in candidates(origin, j) if remedy.sentence.startswith(f"{one.what}:"))
            assert start_when_followed(made, policy, at_s, offer) <= remedy.start_s + 1e-6, remedy.sentence
            kinds.append(remedy.kind)
    return kinds


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
def test_no_waiting_job_is_without_a_reason_and_following_a_remedy_starts_it_in_time(
    policy: Policy, tmp_path: Path
) -> None:
    follow_all(policy, 1, When.EVENTS, tmp_path)


def test_every_remedy_of_an_owner_is_offered_somewhere(tmp_path: Path) -> None:
    fifo = find_round_policy("fifo")
    kinds = {kind for seed in (1, 2, 3) for kind in follow_all(fifo, seed, When.ROUNDS, tmp_path)}
    assert kinds == {RemedyKind.TYPES, RemedyKind.WIDTH, RemedyKind.HOLD}
