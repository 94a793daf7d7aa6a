"""While shares, capacity and active jobs do not change, jobs move only as fractional shares demand."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import (
    ROUND_POLICIES,
    THREE,
    Scene,
    clusters,
    job,
    possible,
    profile,
    profiles,
    run_checked,
    setups,
    workloads,
)
from fairlead.model.allocation import Allocation, Answer, Level, Shares
from fairlead.model.arrays import FloatArray
from fairlead.model.decision import Decision
from fairlead.model.events import Started, Stopped
from fairlead.model.view import View
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import TableEstimator, allowed_rates
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.rounds.state import State

ROUND_S = 360.0

every_policy = pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
grants_and_places = pytest.mark.parametrize(
    "policy", [p for p in ROUND_POLICIES if p.level is not Level.SHARES], ids=attrgetter("name")
)


def rounds(state: State, policy: Policy, count: int) -> Iterator[Decision]:
    """Run this many rounds in which no job arrives, ends or fails and the policy decides every time."""
    memory = Memory()
    for number in range(count):
        now_s = number * ROUND_S
        state.pass_time(now_s)
        decision, memory = decide(look(state, policy, ROUND_S), policy, memory)
        state.fold(decision)
        if decision.stop.size:
            state.fold(Stopped(now_s, decision.stop, state.done_at(decision.stop, now_s)))
        if decision.start.size:
            resume_s = now_s + state.restart_s[decision.start]
            state.fold(Started(now_s, decision.start, np.ones(len(resume_s)), resume_s))
        yield decision


def always(level: Level, allocation: Allocation) -> Policy:
    """A policy that returns the same answer in every round."""

    def allocate(view: View, memory: None) -> tuple[Allocation, None]:
        return allocation, None

    return Policy("always", "", "", level, allocate)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Up to ten jobs that have all arrived, can all run, and do not mix types."""
    speeds, cluster = draw(profiles()), draw(clusters())
    rates = TableEstimator(speeds, cluster)
    jobs = [replace(spec, arrival_s=0.0, relaxed=False, steps=1e9) for spec in draw(workloads(speeds))]
    possible = [spec for spec in jobs if allowed_rates(spec, cluster, rates).any()]
    return Scene(possible, cluster, speeds, restart_s=draw(st.sampled_from((None, 0.0, 400.0))))


@grants_and_places
@settings(max_examples=20)
@given(scene=scenes())
def test_the_same_grants_or_placements_are_applied_once(policy: Policy, scene: Scene) -> None:
    state = scene.state()
    answer, _ = policy.allocate(look(state, policy, ROUND_S), None)

    first, *later = rounds(state, always(policy.level, answer), 6)

    assert_gangs_only_come_together(first, later)


@every_policy
@settings(max_examples=20)
@given(scene=scenes())
def test_shares_of_whole_gangs_are_granted_once(policy: Policy, scene: Scene) -> None:
    """The shares are what runs after the policy's first round, where that is at reference widths."""
    ran = scene.state()
    list(rounds(ran, policy, 1))
    held = np.flatnonzero(ran.held_gpus[: ran.jobs] == ran.width[: ran.jobs])
    table = np.zeros((len(held), len(ran.capacity)))  # j,t  GPUs
    table[np.arange(len(held)), ran.held_type[held]] = ran.held_gpus[held]
    alone = replace(scene, jobs=[scene.jobs[j] for j in held.tolist()])

    first, *later = rounds(alone.state(), always(Level.SHARES, shares_by_job(table)), 6)

    assert len(first.start) == len(held)
    assert_gangs_only_come_together(first, later)


def assert_gangs_only_come_together(first: Decision, later: list[Decision]) -> None:
    """After the first round a job moves only to fewer nodes, where it is faster."""
    nodes = {int(j): len(spot) for j, spot in zip(first.start, first.spots, strict=True)}
    for decision in later:
        assert decision.stop.tolist() == decision.start.tolist()
        for j, spot in zip(decision.start.tolist(), decision.spots, strict=True):
            assert len(spot) < nodes[j]
            nodes[j] = len(spot)


@st.composite
def fractions(draw: st.DrawFn) -> tuple[Scene, FloatArray]:
    """Shares of single GPUs for a part of the time or all of it, within the cluster's capacity."""
    sizes = {gpu: draw(st.integers(low, 4)) for gpu, low in (("v100", 1), ("p100", 0), ("k80", 0))}
    cluster = ",".join(f"{gpu}:{size}" for gpu, size in sizes.items() if size)
    capacity = np.array([size for size in sizes.values() if size])
    models = draw(st.lists(st.sampled_from(("fast", "even")), min_size=1, max_size=8))
    jobs = [job(f"j{i}", samples=1e9, model=model) for i, model in enumerate(models)]
    cells = st.lists(st.integers(0, 100), min_size=capacity.size, max_size=capacity.size)
    part = np.array([draw(cells) for _ in jobs]) / 100.0  # j,t
    part /= np.maximum(part.sum(axis=1, keepdims=True), 1.0)
    part *= np.minimum(1.0, capacity / np.maximum(part.sum(axis=0), 1e-9))
    return Scene(jobs, cluster, THREE, restart_s=0.0), np.round(part, 6)


@settings(max_examples=60)
@given(made=fractions())
def test_jobs_take_turns_no_more_often_than_their_fractions_demand(made: tuple[Scene, FloatArray]) -> None:
    """A job that is owed the part f of a GPU has at most one turn a round, N min(f, 1 - f) in N rounds. A turn
    begins and ends, and either may displace one other job. Who is owed a whole GPU or none has no turns.
    """
    scene, part = made
    count = 50

    _, *later = rounds(scene.state(), always(Level.SHARES, shares_by_job(part)), count)

    turns = np.ceil(count * np.minimum(part, 1.0 - part)).sum()
    assert sum(len(decision.start) for decision in later) <= 4 * turns


def test_gpus_that_no_job_is_owed_do_not_change_hands() -> None:
    """One V100 is left over for three jobs without any share."""
    scene = Scene([job("a"), job("b"), job("c")], "v100:1")

    first, *later = rounds(scene.state(), always(Level.SHARES, shares_by_job(np.zeros((3, 1)))), 6)

    assert first.start.tolist() == [0]
    assert not any(decision.start.size for decision in later)


def shares_by_job(gpus: FloatArray) -> Shares:
    return Shares(gpus, np.arange(len(gpus)), np.arange(len(gpus)))


@every_policy
@settings(max_examples=20)
@given(data=st.data())
def test_a_job_is_started_at_most_once_in_min_run(policy: Policy, data: st.DataObject) -> None:
    made = data.draw(setups(policy))
    longer = replace(made.settings, min_run_s=900.0)
    calm = possible(replace(made, settings=longer, world=replace(made.world, mtbf_s=0.0), changes=()))

    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal"
        run_checked(calm, journal)
        records = [json.loads(line) for line in journal.read_text().splitlines()]

    last: dict[str, float] = {}
    for record in records:
        for id_ in record["start"] if record.get("event") == "decision" else ():
            assert record["time_s"] >= last.get(id_, -900.0) + 900.0
            last[id_] = record["time_s"]


def test_an_answer_holds_only_for_now_where_leftovers_were_assigned() -> None:
    """`a` need not move to the V100 that its share names, so `b`, which is owed nothing, has it for a round."""
    speeds = profile({"even": {"v100": 1.0, "k80": 1.0}, "v": {"v100": 1.0}})
    scene = Scene([job("a"), job("b", model="v")], "v100:1,k80:1", speeds, held={"a": ((1, 1),)}, now_s=ROUND_S)
    owners = np.arange(2)
    for_ever = Shares(np.array([[1.0, 0.0], [0.0, 0.0]]), owners, owners, Answer(holds_until_s=math.inf))

    decision, memory = decide(scene.view(), always(Level.SHARES, for_ever), Memory())

    assert decision.start.tolist() == [1]
    assert decision.holds_until_s == ROUND_S
    assert memory.owed.gpus.tolist() == [[0.0, 0.0], [-1.0, 0.0]]
