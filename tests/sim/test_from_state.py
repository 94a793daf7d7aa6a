"""The simulator starts from a folded state: what comes then is what would have come without the break."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import pytest

from building import ROUND_POLICIES
from fairlead.model.decision import Decision
from fairlead.model.events import Event, Lost, NodeDown, NodeUp, Stopped
from fairlead.policies import REGISTRY
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.loop import Carried, When
from fairlead.rounds.records import Record, Records, to_line
from fairlead.rounds.replay import carry
from fairlead.rounds.snapshot import dump
from fairlead.rounds.state import State
from fairlead.studies.journals.folding import carried_at, state_at
from fairlead.studies.policy_lab.policy_worlds import make_world
from fairlead.studies.runs.from_state import simulate_from
from fairlead.studies.runs.simulate import Result, Setup, simulate


@dataclass
class Tape:
    """Keeps all that a journal is told."""

    records: list[Record] = field(default_factory=list)

    def event(self, event: Event) -> None:
        self.records.append(event)

    def decision(self, decision: Decision) -> None:
        self.records.append(decision)


def lines(made: Setup, records: list[Record]) -> list[str]:
    named = Records(made.cluster)
    return [to_line(named.to_json(record)) for record in records]


def empty(made: Setup) -> State:
    return State(made.cluster, made.estimator(), made.tenant_weight)


def told(made: Setup) -> list[Record]:
    tape = Tape()
    simulate(made, watch=tape)
    return tape.records


def go_on(made: Setup, state: State, tape: Tape, carried: Carried | None, until_s: float | None = None) -> Result:
    """With the world of the set-up: its speeds, its true lengths and its faults."""
    steps = {spec.id: spec.steps for spec in made.trace.jobs}
    return simulate_from(
        state,
        made.policy,
        made.settings,
        made.world,
        future=made.trace.jobs[state.jobs :],
        lengths=lambda spec, done: steps[spec.id],
        rates=TableEstimator(made.profile, made.cluster, restart_s=made.restart_s),
        carried=carried,
        faults_since_s=0.0,
        until_s=until_s,
        journal=tape,
    )


WORLDS = (
    0,
    3,
    4,
    6,
)  # both ways to decide, with and without min_run, hidden speeds, wrong lengths, restarts up to 400 s


def world(policy: Policy, example: int) -> Setup:
    made = make_world(policy, example)
    faults = replace(made.world, mtbf_s=6000.0, repair_s=400.0, checkpoint_s=100.0)
    return replace(made, world=faults, sensing=list(Sensing)[WORLDS.index(example)])


def some_times(records: list[Record]) -> list[float]:
    """Instants in which something happens, and moments between them."""
    times = sorted({record.time_s for record in records})
    between = [(one + two) / 2 for one, two in pairwise(times)]
    return [*times[:: len(times) // 3 + 1], *between[1 :: len(between) // 2 + 1]]


@pytest.mark.parametrize("example", WORLDS)
@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
def test_a_break_changes_no_event(policy: Policy, example: int) -> None:
    made, whole = world(policy, example), Tape()
    result = simulate(made, watch=whole)
    for time_s in some_times(whole.records):
        tape = Tape()
        first = go_on(made, empty(made), tape, None, time_s)
        assert all(record.time_s <= time_s for record in tape.records)
        second = go_on(made, first.state, tape, first.run.carried)

        assert lines(made, tape.records) == lines(made, whole.records)
        assert first.run.rounds + second.run.rounds == result.run.rounds
        assert second.state.busy_gpu_s == pytest.approx(result.state.busy_gpu_s)


def test_the_worlds_hold_what_the_law_is_about() -> None:
    seen = [world(REGISTRY["las"], example) for example in WORLDS]
    kinds = {type(record) for made in seen for record in told(made)}
    assert {NodeDown, NodeUp, Lost, Stopped} <= kinds
    assert {made.settings.when for made in seen} == set(When)
    assert {made.settings.min_run_s > 0 for made in seen} == {False, True}
    assert {made.world.length_error > 0 for made in seen} == {False, True}
    assert any(made.world.server_factor != (1.0, 1.0) for made in seen)
    assert {made.sensing for made in seen} == set(Sensing)


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
def test_a_journal_holds_all_that_the_rest_of_the_run_depends_on(policy: Policy, tmp_path: Path) -> None:
    """Memory included: the decisions up to then are taken again."""
    made, whole, path = world(policy, 0), Tape(), tmp_path / "run.jsonl"
    simulate(made, path, watch=whole)
    for time_s in some_times(whole.records)[1:]:
        state, _, carried = carried_at(path, policy, time_s)
        before = [record for record in whole.records if record.time_s <= time_s]
        tape = Tape()
        go_on(made, state, tape, carried)

        assert lines(made, before + tape.records) == lines(made, whole.records)
        assert dump(state) == dump(state_at(path, time_s))


def test_any_record_of_an_instant_may_be_the_last_one_that_was_folded() -> None:
    """Jobs that were starting, stopping or on a node that has just failed are settled as in the whole run."""
    made = world(REGISTRY["las"], 0)
    records = told(made)
    for cut in range(0, len(records), 3):
        state = empty(made)
        _, carried = carry(records[:cut], state, made.policy, made.settings)
        tape = Tape()
        go_on(made, state, tape, carried)

        assert lines(made, records[:cut] + tape.records) == lines(made, records)
