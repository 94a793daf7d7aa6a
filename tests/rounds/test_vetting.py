"""Decisions of another process: sound ones are accepted as they are, and every kind of unsound one is rejected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import ROUND_POLICIES, THREE
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, NodeDown
from fairlead.model.jobs import JobSpec
from fairlead.policies import find_round_policy
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.decide import Memory
from fairlead.rounds.decision_bytes import decision_from_bytes, decision_to_bytes
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.loop import HereDecider, Settings
from fairlead.rounds.replay import same, same_reasons
from fairlead.rounds.state import State
from fairlead.rounds.vetting import RejectedDecisionError, vet
from fairlead.studies.journals.folding import open_state
from fairlead.studies.policy_lab.policy_worlds import make_world
from fairlead.studies.runs.simulate import simulate


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
def test_what_a_policy_decides_passes_unchanged_as_bytes(policy: Policy, tmp_path: Path) -> None:
    decisions = 0
    for example in range(3):
        journal = tmp_path / f"{example}.jsonl"
        simulate(make_world(policy, example), journal=journal)
        reader = JournalReader(journal)
        state = open_state(reader.header())
        for record in reader.records():
            if isinstance(record, Decision):
                state.pass_time(record.time_s)
                copy = decision_from_bytes(decision_to_bytes(record))
                vet(state, copy, record.cause)
                assert same(record, copy)
                assert same_reasons(record, copy)
                decisions += 1
            state.fold(record)
    assert decisions > 10


def decided() -> tuple[State, Decision]:
    """Five jobs arrived, of which two run since the first decision; the second one starts a third and stops none."""
    cluster = parse_short_form("v100:2x1,k80:2x1")
    state = State(cluster, TableEstimator(THREE, cluster))
    for number in range(5):
        types = ("v100",) if number == 4 else ()
        state.fold(Arrived(0.0, JobSpec(f"j{number}", "t", THREE.models[0], 0.0, 1, 1e6, types=types)))
    state.fold(NodeDown(0.0, 3))
    decision = HereDecider(find_round_policy("fifo"), Settings(), Memory()).decide(state, Cause.ROUND)
    vet(state, decision, Cause.ROUND)
    return state, decision


def starting(*jobs_and_spots: tuple[int, tuple[tuple[int, int], ...]]) -> dict[str, Any]:
    jobs, spots = zip(*jobs_and_spots, strict=True)
    return {"start": np.array(jobs), "spots": spots}


def _explained(change: Callable[[Any], dict[str, Any]]) -> Callable[[Decision], dict[str, Any]]:
    def changed(decision: Decision) -> dict[str, Any]:
        assert decision.why is not None
        return {"why": replace(decision.why, outcomes=replace(decision.why.outcomes, **change(decision.why.outcomes)))}

    return changed


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _: {"time_s": 1.0}, "it is of 1.0 s"),
        (lambda _: {"cause": Cause.EVENT}, "it is of 0.0 s"),
        (lambda _: {"holds_until_s": math.nan}, "it holds until nan s"),
        (lambda _: {"stop": np.array([4])}, "a job that is WAITING cannot take the step STOP"),
        (lambda _: {"stop": np.array([5])}, "it stops jobs that are unknown"),
        (lambda _: {"trials": (-1,)}, "it tries jobs that are unknown"),
        (lambda _: starting((0, ((0, 1),)), (0, ((1, 1),))), "it starts jobs that are unknown, repeated"),
        (lambda _: {"spots": ()}, "it starts 3 jobs on 0 spots"),
        (lambda _: starting((0, ((0, 1),)), (1, ((0, 1),))), "1 GPU of node v100-1 more than are free"),
        (lambda _: starting((0, ())), "the spot of job j0 is empty"),
        (lambda _: starting((0, ((9, 1),))), "unknown or repeated nodes"),
        (lambda _: starting((0, ((0, 2),))), r"job j0 gets \[2\] GPUs; it runs on \[1\]"),
        (lambda _: starting((0, ((0, 0), (1, 1)))), r"job j0 gets \[0, 1\] GPUs"),
        (lambda _: starting((0, ((3, 1),))), "job j0 is placed on node k80-2, which is down"),
        (lambda _: starting((4, ((2, 1),))), "job j4 gets k80; it runs on"),
        (_explained(lambda rows: {"a": rows.a[1:]}), "the columns of its reasons have different lengths"),
        (_explained(lambda rows: {"reason": rows.reason + 100}), "a reason that does not exist"),
        (_explained(lambda rows: {"b": rows.b + math.nan}), "a number of its reasons is not finite"),
        (_explained(lambda rows: {"job": rows.job + 5}), "it explains jobs that are unknown"),
        (lambda decision: {"why": replace(decision.why, gain=math.inf)}, "its gain is not finite"),
        (lambda decision: {"why": replace(decision.why, successors={9: ()})}, "its successors are unknown jobs"),
    ],
)
def test_every_kind_of_unsound_decision_is_rejected(change: Callable[[Decision], dict[str, Any]], why: str) -> None:
    state, decision = decided()
    with pytest.raises(RejectedDecisionError, match=why):
        vet(state, replace(decision, **change(decision)), Cause.ROUND)


def test_no_job_is_stopped_within_a_round() -> None:
    state, decision = decided()
    state.fold(decision)
    stops = replace(
        decision, cause=Cause.EVENT, stop=decision.start, start=np.array([], dtype=np.int64), spots=(), why=None
    )
    with pytest.raises(RejectedDecisionError, match="it stops jobs within a round"):
        vet(state, stops, Cause.EVENT)
