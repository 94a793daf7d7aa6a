"""The same seed gives the same bytes, and a journal contains enough to repeat its decisions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import EVERY_POLICY, ROUND_POLICIES, TASK_POLICIES, job, setup, setups
from fairlead.model.decision import Decision
from fairlead.model.errors import InputError
from fairlead.policies import REGISTRY, find_round_policy
from fairlead.policies.policy import AnyPolicy, Policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import Profile, Speed
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.loop import Settings
from fairlead.rounds.replay import replay, same
from fairlead.rounds.state import State
from fairlead.sim.truth import World
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.runs.summary import summarise

every_policy = pytest.mark.parametrize("policy", EVERY_POLICY, ids=attrgetter("name"))
every_round_policy = pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
every_task_policy = pytest.mark.parametrize("policy", TASK_POLICIES, ids=attrgetter("name"))


def journal_of(made: Setup) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        simulate(made, path)
        return path.read_bytes()


def replay_file(path: Path, policy: Policy) -> Iterator[tuple[Decision, Decision]]:
    """Replay from the file alone, with only the policy's code from outside."""
    return replay(JournalReader(path).records(), state_of(path), policy, settings_of(path))


def state_of(path: Path) -> State:
    header = JournalReader(path).header()
    estimator = TableEstimator(header.profile, header.cluster, restart_s=header.restart_s)
    return State(header.cluster, estimator, header.tenant_weight)


def settings_of(path: Path) -> Settings:
    return Settings(**JournalReader(path).header().settings)


@every_policy
@settings(max_examples=10)
@given(data=st.data())
def test_the_same_seed_gives_the_same_bytes(policy: AnyPolicy, data: st.DataObject) -> None:
    made = data.draw(setups(policy))

    assert journal_of(made) == journal_of(made)


@every_policy
def test_another_seed_gives_another_journal(policy: AnyPolicy) -> None:
    jobs = [job(f"j{i}", samples=5000.0) for i in range(4)]
    faults = 0.0 if policy in TASK_POLICIES else 2000.0
    world = World(server_factor=(0.5, 1.0), mtbf_s=faults, repair_s=100.0, length_error=0.2)

    first, second = (
        journal_of(setup(jobs, "v100:4x1", policy, world=replace(world, seed=seed))).splitlines()[1:] for seed in (1, 2)
    )

    assert first != second


@every_round_policy
@settings(max_examples=15)
@given(data=st.data())
def test_replay_decides_as_recorded(policy: Policy, data: st.DataObject) -> None:
    made = data.draw(setups(policy))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        simulate(made, path)

        pairs = list(replay_file(path, policy))

    assert bool(pairs) == bool(made.trace.jobs)
    for recorded, again in pairs:
        assert same(recorded, again), f"at {recorded.time_s} s: {recorded} became {again}"


@every_task_policy
@settings(max_examples=15)
@given(data=st.data())
def test_replay_runs_single_tasks_as_recorded(policy: Policy, data: st.DataObject) -> None:
    made = data.draw(setups(policy))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        simulate(made, path)

        comparison = replay_journal(path, policy)

    assert bool(comparison.decisions) == bool(made.trace.jobs)
    assert (comparison.same, comparison.first_different_s) == (comparison.decisions, None)


def test_replay_shows_where_another_policy_for_tasks_differs(tmp_path: Path) -> None:
    """The short job arrived last; a policy that knows its length would have started it first."""
    simulate(setup([job("a", samples=5000.0), job("b", samples=100.0)], "v100:1", "hlas"), tmp_path / "journal")

    comparison = replay_journal(tmp_path / "journal", REGISTRY["hare-online"])

    assert comparison.first_different_s == 0.0
    assert comparison.same < comparison.decisions


def test_rounds_and_single_tasks_are_not_compared(tmp_path: Path) -> None:
    simulate(setup([job("a")], "v100:1", "hlas"), tmp_path / "tasks")
    simulate(setup([job("a")], "v100:1"), tmp_path / "rounds")

    for journal, other in (("tasks", "fifo"), ("rounds", "hlas")):
        with pytest.raises(InputError, match="cannot be compared"):
            replay_journal(tmp_path / journal, REGISTRY[other])


@every_round_policy
@settings(max_examples=5)
@given(data=st.data())
def test_replay_shows_what_another_policy_would_decide(policy: Policy, data: st.DataObject) -> None:
    made = data.draw(setups("fifo-sticky"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        simulate(made, path)

        pairs = list(replay_file(path, policy))

    assert [again.time_s for _, again in pairs] == [recorded.time_s for recorded, _ in pairs]


def test_what_if_sees_where_two_policies_differ(tmp_path: Path) -> None:
    """The short job arrived last; srtf would have started it first."""
    simulate(setup([job("a", samples=5000.0), job("b", samples=100.0)], "v100:1"), tmp_path / "journal")

    (recorded, again), *_ = replay_file(tmp_path / "journal", find_round_policy("srtf"))

    assert recorded.start.tolist() == [0]
    assert again.start.tolist() == [1]


@every_policy
@settings(max_examples=10)
@given(data=st.data())
def test_a_replayed_state_gives_the_same_summary(policy: Policy, data: st.DataObject) -> None:
    made = data.draw(setups(policy))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        result = simulate(made, path)
        state = state_of(path)

        for record in JournalReader(path).records():
            state.fold(record)

    assert summarise(state) == summarise(result.state)


def test_a_journal_defines_a_step_even_if_no_gpu_of_the_cluster_does(tmp_path: Path) -> None:
    """The model's first row, which defines a step, is for a GPU that this cluster does not have."""
    speeds = Profile(
        "two batches",
        (
            Speed("m", "a100", 1, 1, 64.0, 1.0, "made up"),
            Speed("m", "v100", 1, 1, 16.0, 2.0, "made up"),
            Speed("other", "v100", 1, 1, 1.0, 20.0, "made up"),
        ),
    )
    jobs = [job("a", samples=100.0, model="m"), job("b", samples=300.0, model="other")]
    result = simulate(setup(jobs, "v100:1", "srtf", speeds), tmp_path / "journal")
    state = state_of(tmp_path / "journal")

    for record in JournalReader(tmp_path / "journal").records():
        state.fold(record)

    assert state.total[:2].tolist() == result.state.total[:2].tolist() == [6400.0, 300.0]


def test_speeds_of_models_that_do_not_run_do_not_change_the_order_of_types(tmp_path: Path) -> None:
    """They are not in the journal, so the run must not have known them either."""
    rows = (("m", "v100", 2.0), ("m", "k80", 1.0), ("other", "v100", 1.0), ("other", "k80", 100.0))
    speeds = Profile("two", tuple(Speed(model, gpu, 1, 1, 1.0, rate, "made up") for model, gpu, rate in rows))
    simulate(setup([job("a", model="m")], "k80:1,v100:1", "las", speeds), tmp_path / "journal")

    pairs = list(replay_file(tmp_path / "journal", find_round_policy("las")))

    assert all(same(recorded, again) for recorded, again in pairs)
    assert pairs[0][0].spots == (((1, 1),),)
