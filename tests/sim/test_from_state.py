"""The simulator starts from a folded state: the run continues as it would have without the interruption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from building import ROUND_POLICIES, THREE, Scene, job, start
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Decision
from fairlead.model.events import Arrived, Cancelled, Event, Finished, Lost, NodeDown, NodeUp, NodeUsable, Stopped
from fairlead.model.lifecycle import Phase
from fairlead.policies import as_round_policy, find_round_policy
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.three_layer import Sensing, ThreeLayer, build_estimator
from fairlead.rounds.loop import Carried, Settings, When
from fairlead.rounds.records import Record, Records, to_line
from fairlead.rounds.replay import carry
from fairlead.rounds.snapshot import dump
from fairlead.rounds.state import State
from fairlead.sim.rounds.faults import Faults
from fairlead.sim.truth import World
from fairlead.studies.journals.folding import carried_at, state_at
from fairlead.studies.policy_lab.policy_worlds import make_world
from fairlead.studies.runs.from_state import simulate_from
from fairlead.studies.runs.simulate import Result, Setup, simulate


@dataclass
class Tape:
    """Keeps all records of a journal."""

    records: list[Record] = field(default_factory=list)

    def event(self, event: Event) -> None:
        self.records.append(event)

    def decision(self, decision: Decision) -> None:
        self.records.append(decision)


def lines(made: Setup, records: Sequence[Record]) -> list[str]:
    named = Records(made.cluster)
    return [to_line(named.to_json(record)) for record in records]


def empty(made: Setup) -> State:
    return State(made.cluster, made.estimator(), made.tenant_weight)


def records_of(made: Setup) -> list[Record]:
    tape = Tape()
    simulate(made, watch=tape)
    return tape.records


def continue_run(
    made: Setup, state: State, tape: Tape, carried: Carried | None, until_s: float | None = None
) -> Result:
    """Continue in the world of the set-up: with its speeds, its true lengths and its faults."""
    steps = {spec.id: spec.steps for spec in made.trace.jobs}
    return simulate_from(
        state,
        as_round_policy(made.policy),
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
)  # decisions by rounds and by events, with and without min_run, hidden speeds, wrong lengths, restarts up to 400 s


def world(policy: Policy, example: int) -> Setup:
    made = make_world(policy, example)
    faults = replace(made.world, mtbf_s=6000.0, repair_s=400.0, checkpoint_s=100.0)
    return replace(made, world=faults, sensing=list(Sensing)[WORLDS.index(example)])


def some_times(records: list[Record]) -> list[float]:
    """Times of events, and times between them."""
    times = sorted({record.time_s for record in records})
    between = [(one + two) / 2 for one, two in pairwise(times)]
    return [*times[:: len(times) // 3 + 1], *between[1 :: len(between) // 2 + 1]]


@pytest.mark.parametrize("example", WORLDS)
@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
def test_an_interruption_changes_no_event(policy: Policy, example: int) -> None:
    made, whole = world(policy, example), Tape()
    result = simulate(made, watch=whole)
    for time_s in some_times(whole.records):
        tape = Tape()
        first = continue_run(made, empty(made), tape, None, time_s)
        assert all(record.time_s <= time_s for record in tape.records)
        second = continue_run(made, first.state, tape, first.run.carried)

        assert lines(made, tape.records) == lines(made, whole.records)
        assert first.run.rounds + second.run.rounds == result.run.rounds
        assert second.state.busy_gpu_s == pytest.approx(result.state.busy_gpu_s)


def test_the_worlds_cover_every_kind_of_record_and_setting() -> None:
    setups = [world(find_round_policy("las"), example) for example in WORLDS]
    kinds = {type(record) for made in setups for record in records_of(made)}
    assert {NodeDown, NodeUp, Lost, Stopped} <= kinds
    assert {made.settings.when for made in setups} == set(When)
    assert {made.settings.min_run_s > 0 for made in setups} == {False, True}
    assert {made.world.length_error > 0 for made in setups} == {False, True}
    assert any(made.world.server_factor != (1.0, 1.0) for made in setups)
    assert {made.sensing for made in setups} == set(Sensing)


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
def test_a_journal_holds_all_that_the_rest_of_the_run_depends_on(policy: Policy, tmp_path: Path) -> None:
    """This includes the memory: the decisions up to that point are made again."""
    made, whole, path = world(policy, 0), Tape(), tmp_path / "run.jsonl"
    simulate(made, path, watch=whole)
    for time_s in some_times(whole.records)[1:]:
        state, _, _, carried = carried_at(path, policy, time_s)
        before = [record for record in whole.records if record.time_s <= time_s]
        tape = Tape()
        continue_run(made, state, tape, carried)

        assert lines(made, before + tape.records) == lines(made, whole.records)
        assert dump(state) == dump(state_at(path, time_s))


def test_any_record_of_an_instant_may_be_the_last_one_that_was_folded() -> None:
    """Jobs that were starting, stopping or on a node that has just failed continue as in the uninterrupted run."""
    made = world(find_round_policy("las"), 0)
    records = records_of(made)
    for cut in range(0, len(records), 3):
        state = empty(made)
        _, _, carried = carry(records[:cut], state, as_round_policy(made.policy), made.settings)
        tape = Tape()
        continue_run(made, state, tape, carried)

        assert lines(made, records[:cut] + tape.records) == lines(made, records)


@pytest.mark.parametrize("name", ["fifo", "srtf", "las"])
@pytest.mark.parametrize("example", WORLDS)
def test_a_policy_that_remembers_nothing_needs_no_memory(name: str, example: int) -> None:
    """It may decide once more at the next boundary, but the events are the same."""
    made = world(find_round_policy(name), example)
    whole = records_of(made)
    for time_s in some_times(whole)[1:]:
        tape = Tape()
        first = continue_run(made, empty(made), tape, None, time_s)
        continue_run(made, first.state, tape, None)

        happened = [
            [record for record in records if not isinstance(record, Decision)] for records in (tape.records, whole)
        ]
        assert lines(made, happened[0]) == lines(made, happened[1])


def test_nodes_of_another_world_keep_their_condition() -> None:
    drawn = Faults(3, mtbf_s=100.0, repair_s=10.0, seed=1, since_s=1000.0)
    other = Faults(3, mtbf_s=100.0, repair_s=10.0, seed=1, since_s=1000.0)
    other.skip_to(1000.0, np.array([True, False, True]))
    turns = [other.pop() for _ in range(40)]

    first = {node: next(turn for turn in turns if turn.node == node) for node in range(3)}
    assert isinstance(first[1], NodeUp)
    assert first[1].time_s > 1000.0
    expected = {turn.node: turn.time_s for turn in reversed([drawn.pop() for _ in range(40)])}
    assert (first[0].time_s, first[2].time_s) == (expected[0], expected[2])


def test_a_node_that_is_down_stays_so_where_nodes_never_fail() -> None:
    scene = Scene([job("a", 2)], "v100:4x2", down=[0, 1], now_s=50.0)
    result = simulate_from(scene.state(), find_round_policy("fifo"), Settings(60.0))
    assert result.state.active == 1
    assert result.state.capacity.tolist() == [0]


def test_a_job_past_its_length_ends_now_and_one_on_a_node_that_is_down_is_lost() -> None:
    jobs = [job("over", samples=10.0), job("lost", samples=1000.0)]
    state = Scene(jobs, "v100:2x1", held={"over": ((0, 1),), "lost": ((1, 1),)}, now_s=50.0, down=[1]).state()
    tape = Tape()
    result = simulate_from(state, find_round_policy("fifo"), Settings(60.0), journal=tape)

    ended = {spec.id: float(result.state.end_s[j]) for j, spec in enumerate(state.specs)}
    assert ended["over"] == 50.0
    assert ended["lost"] == 60.0 + 1000.0  # it starts again from the beginning, because it had no checkpoint
    assert [type(record) for record in tape.records[:2]] == [Lost, Finished]


def test_the_length_of_a_job_that_is_over_need_not_be_known() -> None:
    state = Scene([replace(job("a"), steps=None), job("b", samples=100.0)], "v100:2x1", now_s=50.0).state()
    state.fold(Cancelled(50.0, np.array([0])))

    result = simulate_from(state, find_round_policy("fifo"), Settings(60.0))

    assert result.state.end_s[1] == 60.0 + 100.0


def test_learnt_rates_are_the_truth_if_no_other_truth_is_stated() -> None:
    """The node was observed to be half as fast by three jobs; a later job runs at half the profile's rate there."""
    cluster = parse_short_form("v100:1")
    estimator = build_estimator(THREE, cluster, None, Sensing.THREE_LAYER)
    assert isinstance(estimator, ThreeLayer)
    for earlier in (7, 8, 9):
        estimator.observe(earlier, "even", ((0, 1),), 0.5 * estimator.at("even", 0, 1, 1))
    state = State(cluster, estimator)
    state.fold(Arrived(0.0, job("a", samples=1000.0)))
    start(state, "a", ((0, 1),), 0.0, rate=0.5)
    later = job("b", samples=100.0, at=10.0)
    result = simulate_from(state, find_round_policy("fifo"), Settings(60.0), future=[later])

    assert result.state.end_s[:2].tolist() == [2000.0, 2040.0 + 200.0]
    plain = simulate_from(
        state, find_round_policy("fifo"), Settings(60.0), future=[later], rates=TableEstimator(THREE, cluster)
    )
    assert plain.state.end_s[1] == 2040.0 + 100.0


def test_simulating_from_a_state_does_not_change_it() -> None:
    made = world(find_round_policy("gavel"), 0)
    first = continue_run(made, empty(made), Tape(), None, 900.0)
    before = dump(first.state)
    continue_run(made, first.state, Tape(), first.run.carried)
    assert dump(first.state) == before


FAULTS = World(mtbf_s=1e7, repair_s=600.0, seed=3)
MIXING = next(policy for policy in ROUND_POLICIES if policy.name == "plug-in-mixed")


def end_of(state: State, policy: Policy) -> Result:
    """The end of a run with faults; a run that does not end fails."""
    decisions = count(1)

    def tick(state: State) -> None:
        assert next(decisions) < 2000, f"at {state.now_s} s the run has not ended"

    return simulate_from(state, policy, Settings(), FAULTS, tick=tick)


def test_a_job_that_runs_only_on_a_mix_of_types_waits_for_the_repair_of_a_node() -> None:
    state = Scene([job("a", 6, 6000.0, relaxed=True)], "v100:4,k80:4", down=[1]).state()

    assert end_of(state, MIXING).state.phase[0] == Phase.FINISHED


def test_a_run_ends_though_nodes_fail_if_the_policy_never_starts_the_job_that_is_left() -> None:
    state = Scene([job("a", 6, 6000.0, relaxed=True)], "v100:4,k80:4", down=[1]).state()

    assert end_of(state, find_round_policy("fifo")).state.phase[0] == Phase.WAITING


def test_a_run_from_a_state_ends_if_the_job_that_is_left_needs_gpus_that_others_hold() -> None:
    state = Scene([job("a", 4, 1e5)], "v100:4").state()
    state.fold(NodeUsable(1.0, 0, 2))

    assert end_of(state, find_round_policy("fifo")).state.phase[0] == Phase.WAITING
