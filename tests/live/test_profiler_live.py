"""FFT's profiler live: a new model is measured on each type by real processes before it is scheduled."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from live_run import SOURCE, Done, Plan, all_ended, let_end, run_live, training

from building import profile
from fairlead.engines.requests import Command, Request, Submit
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Decision
from fairlead.model.events import Lost
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.state import State
from fairlead.studies.fairness.journal_audit import audit_journal
from fairlead.studies.journals.replaying import replay_journal
from waiting import PATIENCE_S

CLUSTER = "v100:2,k80:2"
KNOWN = profile({"m": {"v100": 50.0, "k80": 25.0}})  # of another model: a V100 is usually faster
PACE = {"v100": 0.3, "k80": 1.0}  # but not for these jobs


def plan(folder: Path, policy: str) -> Plan:
    return Plan(folder, policy, parse_short_form(CLUSTER), KNOWN, PACE, sensing=Sensing.THREE_LAYER)


class OneAfterAnother:
    """A second job of a new model arrives when the first was measured and runs on the type that is best for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next = ["first", "second"]

    def __call__(self, state: State) -> Sequence[Request] | None:
        if all_ended(state) and not self._next:
            return None
        if len(self._next) == 2 or (len(self._next) == 1 and type_of_running(state, 0) == "k80" and measured(state)):
            return [training(self._folder, self._next.pop(0), "t", 20_000.0, model="mine")]
        if not self._next and type_of_running(state, 1) is not None and state.done[1] > 0:
            let_end(self._folder)
        return []


def measured(state: State) -> bool:
    return not state.trials.on and len(state.trials.tried.get((0, 0), ())) == 2


def type_of_running(state: State, j: int) -> str | None:
    if state.phase[j] != Phase.RUNNING:
        return None
    return str(state.cluster.types[state.cluster.type_of[state.spots[j][0][0]]])


def starts(done: Done, j: int) -> list[tuple[str, bool]]:
    """The type of each start of a job, and whether it was a trial."""
    cluster = done.state.cluster
    return [
        (cluster.types[cluster.node_type[spot[0][0]]], j in record.trials)
        for record in done.records()
        if isinstance(record, Decision)
        for k, spot in zip(record.start.tolist(), record.spots, strict=True)
        if k == j
    ]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fft", "fft-ranked"])
def test_a_new_model_is_measured_on_each_type_and_remembered_for_its_next_job(policy: str, tmp_path: Path) -> None:
    done = run_live(plan(tmp_path, policy), OneAfterAnother(tmp_path))

    assert set(done.state.phase[:2].tolist()) == {Phase.FINISHED}
    assert starts(done, 0)[:2] == [("v100", True), ("k80", True)]
    assert not any(is_trial for _, is_trial in starts(done, 0)[2:])
    assert starts(done, 1)[0] == ("k80", False)
    steps = [step for step, _ in done.trained("first")]
    assert steps == list(range(1, len(steps) + 1))
    replayed = replay_journal(done.journal)
    assert replayed.same == replayed.decisions
    cost = audit_journal(done.journal).trials["t"]["mine"]
    assert (cost.trials, cost.gpu_s > 0) == (2, True)


class Failing:
    """A job that runs on V100s only: elsewhere it ends with an error, as one that needs more memory does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._submitted = False

    def __call__(self, state: State) -> Sequence[Request] | None:
        if all_ended(state):
            return None
        if not self._submitted:
            self._submitted = True
            run = f'grep -q \'"type": "k80"\' $FAIRLEAD_LEASE && exit 3; exec {sys.executable} {self._folder}/training.py 20 {self._folder}'
            env = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
            command = Command(run, workdir=str(self._folder), env=env, grace_s=PATIENCE_S)
            return [Submit(JobSpec("large", "t", "mine", 0.0, 1, 20_000.0), command)]
        if state.trials.unfit and type_of_running(state, 0) == "v100":
            let_end(self._folder)
        return []


@pytest.mark.slow
def test_a_job_that_ends_with_an_error_where_it_is_tried_goes_on_where_it_ran(tmp_path: Path) -> None:
    done = run_live(plan(tmp_path, "fft"), Failing(tmp_path))

    assert done.state.phase[0] == Phase.FINISHED
    assert starts(done, 0) == [("v100", True), ("k80", True), ("v100", False)]
    assert [record.unfit for record in done.records() if isinstance(record, Lost)] == [True]
    steps = [step for step, _ in done.trained("large")]
    assert steps == list(range(1, len(steps) + 1))
