"""The virtual clock is exact, and nothing is decided or counted while nothing can have changed."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import THREE, clusters, job, profile, run_checked, setup, speed
from fairlead.model.allocation import Allocation
from fairlead.model.cluster import Cluster, NodeGroup, build_cluster, parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import InputError
from fairlead.model.events import Arrived, Event, Finished, Lost, NodeDown, NodeUp, Started, Stopped
from fairlead.model.jobs import JobSpec
from fairlead.model.view import View
from fairlead.policies import ROUND_POLICIES
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import ModelFacts, Profile
from fairlead.sim.rounds.engine import SimEngine
from fairlead.sim.rounds.faults import Faults
from fairlead.sim.truth import Truth, World
from fairlead.studies.runs.simulate import simulate

NONE = np.array([], dtype=np.int64)


def engine(*jobs: JobSpec, cluster: str = "v100:4", world: World | None = None, restart_s: float = 0.0) -> SimEngine:
    return SimEngine(setup(jobs, cluster, world=world, restart_s=restart_s).truth())


def start(world: SimEngine, time_s: float, *jobs: int) -> None:
    spots = tuple(((0, 1),) for _ in jobs)
    world.apply(Decision(time_s, Cause.ROUND, NONE, np.array(jobs), spots, math.inf, ""))


def stop(world: SimEngine, time_s: float, *jobs: int) -> None:
    world.apply(Decision(time_s, Cause.ROUND, np.array(jobs), NONE, (), math.inf, ""))


def only(events: list[Event]) -> Event:
    assert len(events) == 1
    return events[0]


# ---- the engine --------------------------------------------------------------------------------------------------


def test_first_starts_and_news_take_their_time_and_the_gpus_are_held_until_then() -> None:
    world = engine(job("a", samples=100.0), world=World(start_s=2.0, notice_s=3.0), restart_s=7.0)
    assert isinstance(only(world.wait(math.inf)), Arrived)
    assert world.now() == 3.0
    start(world, 3.0, 0)
    started = only(world.wait(math.inf))
    assert isinstance(started, Started)
    assert started.resume_s.tolist() == [5.0]
    finished = only(world.wait(math.inf))

    assert isinstance(finished, Finished)
    assert finished.time_s == 5.0 + 100.0 / started.rate[0] + 3.0
    assert finished.samples.tolist() == [100.0]


def test_a_job_that_is_stopped_after_its_end_keeps_no_more_than_its_work() -> None:
    world = engine(job("a", samples=100.0), world=World(notice_s=50.0), restart_s=7.0)
    world.wait(math.inf)
    start(world, 50.0, 0)
    started = only(world.wait(math.inf))
    assert isinstance(started, Started)
    stop(world, 50.0 + 100.0 / started.rate[0] + 10.0, 0)
    stopped = only(world.wait(math.inf))

    assert isinstance(stopped, Stopped)
    assert stopped.samples.tolist() == [100.0]


def test_reports_do_not_put_off_an_end_that_is_not_known_yet() -> None:
    world = SimEngine(setup([job("a", samples=100.0)], world=World(notice_s=200.0, report_s=60.0)).truth(), senses=True)
    world.wait(math.inf)
    start(world, 200.0, 0)
    events = [event for _ in range(10) for event in world.wait(1000.0)]

    (finished,) = (event for event in events if isinstance(event, Finished))
    assert finished.time_s == 200.0 + 100.0 + 200.0


def test_a_job_ends_at_its_exact_time() -> None:
    world = engine(job("a", samples=123.456))
    world.wait(math.inf)
    start(world, 0.0, 0)
    world.wait(math.inf)

    end = only(world.wait(math.inf))

    assert isinstance(end, Finished)
    assert end.time_s == 123.456
    assert end.samples.tolist() == [123.456]


def test_nothing_happens_before_the_time_it_waits_for() -> None:
    world = engine(job("a", at=100.0))

    assert world.wait(99.0) == []
    assert world.now() == 99.0
    assert isinstance(only(world.wait(100.0)), Arrived)


def test_time_does_not_advance_without_future_events() -> None:
    world = engine()

    assert world.wait(math.inf) == []
    assert world.now() == 0.0


def test_a_job_that_was_stopped_continues_where_it_was_after_its_restart() -> None:
    world = engine(job("a", samples=100.0), restart_s=7.0)
    world.wait(math.inf)
    start(world, 0.0, 0)
    world.wait(0.0)
    world.wait(40.0)
    stop(world, 40.0, 0)
    stopped = only(world.wait(40.0))
    world.wait(50.0)
    start(world, 50.0, 0)
    started = only(world.wait(50.0))

    end = only(world.wait(math.inf))

    assert isinstance(stopped, Stopped)
    assert stopped.samples.tolist() == [40.0]
    assert isinstance(started, Started)
    assert started.resume_s.tolist() == [57.0]
    assert end.time_s == 50.0 + 7.0 + 60.0


def test_a_job_that_is_stopped_while_it_restores_keeps_its_samples() -> None:
    world = engine(job("a", samples=100.0), restart_s=30.0)
    world.wait(math.inf)
    kept = []
    for start_s, stop_s in ((0.0, 10.0), (40.0, 60.0)):
        world.wait(start_s)
        start(world, start_s, 0)
        world.wait(start_s)
        world.wait(stop_s)
        stop(world, stop_s, 0)
        stopped = only(world.wait(stop_s))
        assert isinstance(stopped, Stopped)
        kept += stopped.samples.tolist()

    assert kept == [10.0, 10.0]


def test_jobs_that_end_at_the_same_time_share_one_event_before_arrivals() -> None:
    world = engine(job("a", samples=60.0), job("b", samples=60.0), job("c", at=60.0))
    world.wait(0.0)
    start(world, 0.0, 0, 1)
    world.wait(0.0)

    ends, arrives = only(world.wait(math.inf)), only(world.wait(math.inf))

    assert isinstance(ends, Finished)
    assert ends.jobs.tolist() == [0, 1]
    assert isinstance(arrives, Arrived)


@pytest.mark.parametrize("seed", range(4))
def test_a_failure_takes_a_job_back_to_its_last_checkpoint(seed: int) -> None:
    """The job saves every 100 s; the seed decides when the first failure comes."""
    down_s = Faults(1, 400.0, 60.0, seed).next_s
    faulty = World(mtbf_s=400.0, repair_s=60.0, checkpoint_s=100.0, seed=seed)
    world = engine(job("a", samples=1e6), cluster="v100:1", world=faulty)
    world.wait(0.0)
    start(world, 0.0, 0)
    world.wait(0.0)

    down, lost = world.wait(math.inf)

    assert isinstance(down, NodeDown)
    assert isinstance(lost, Lost)
    assert (lost.time_s, lost.samples.tolist()) == (down_s, [100.0 * (down_s // 100.0)])


# ---- faults, truth -----------------------------------------------------------------------------------------------


def turns(seed: int, nodes: int = 3) -> list[NodeDown | NodeUp]:
    faults = Faults(nodes, 100.0, 10.0, seed)
    return [faults.pop() for _ in range(200)]


def test_faults_come_from_the_seed() -> None:
    assert turns(1) == turns(1) != turns(2)


def test_faults_come_in_order_and_every_node_goes_down_and_up_in_turn() -> None:
    drawn = turns(1)

    assert [turn.time_s for turn in drawn] == sorted(turn.time_s for turn in drawn)
    for node in range(3):
        kinds = [type(turn) for turn in drawn if turn.node == node]
        assert kinds == [NodeDown, NodeUp] * (len(kinds) // 2) + [NodeDown] * (len(kinds) % 2)


def test_the_fraction_of_time_that_nodes_are_up_follows_from_the_means() -> None:
    faults, down_s, since = Faults(50, 300.0, 100.0, 0), 0.0, {}
    turn: NodeDown | NodeUp = faults.pop()
    while turn.time_s < 20_000.0:
        if isinstance(turn, NodeDown):
            since[turn.node] = turn.time_s
        else:
            down_s += turn.time_s - since.pop(turn.node)
        turn = faults.pop()

    assert down_s / (50 * 20_000.0) == pytest.approx(0.25, abs=0.02)


def test_without_a_mean_time_between_failures_nothing_fails() -> None:
    assert Faults(3, 0.0, 10.0, 0).next_s == math.inf


def truth(cluster: str, world: World, speeds: Profile = THREE) -> Truth:
    made = setup([job("a", 4, model="fast")], cluster, speeds=speeds)
    return Truth(made.trace.jobs, made.cluster, TableEstimator(speeds, made.cluster), world)


def test_the_slowest_node_sets_the_pace() -> None:
    uneven = truth("v100:8", World(server_factor=(0.5, 1.0)))
    alone = [uneven.rate(0, ((node, 4),)) for node in (0, 1)]

    assert alone[0] != alone[1]
    assert uneven.rate(0, ((0, 2), (1, 2))) == pytest.approx(min(alone))
    assert all(0.5 * 16.0 <= rate <= 16.0 for rate in alone)


def test_on_several_types_the_fast_gpus_take_the_tasks_of_the_slow_ones_if_that_is_faster() -> None:
    """Two V100s with two tasks each finish in half the time of a K80 with one."""
    assert truth("v100:4,k80:4", World()).rate(0, ((0, 2), (1, 2))) == 8.0


def test_spreading_costs_what_the_profile_states() -> None:
    speeds = Profile("x", (speed("fast", "v100", 1.0),), {"fast": ModelFacts(spread=0.25)})

    assert truth("v100:8", World(), speeds).rate(0, ((0, 2), (1, 2))) == pytest.approx(1.0)


def test_declared_lengths_are_off_by_no_more_than_the_error() -> None:
    jobs = [job(f"j{i}") for i in range(200)]
    made = setup(jobs, world=World(length_error=0.3))

    ratios = [(spec.steps or 0.0) / 1000.0 for spec in made.truth().declared()]

    assert 0.7 <= min(ratios) < 0.8
    assert 1.2 < max(ratios) <= 1.3


def test_a_simulation_needs_true_lengths() -> None:
    with pytest.raises(InputError, match="job a has no steps"):
        simulate(setup([replace(job("a"), steps=None)]))


@pytest.mark.parametrize(
    "bad",
    [
        {"server_factor": (0.0, 1.0)},
        {"server_factor": (1.1, 1.0)},
        {"server_factor": (math.nan, 1.0)},
        {"length_error": 1.0},
        {"length_error": -0.1},
        {"length_error": math.nan},
        {"checkpoint_s": 0.0},
        {"repair_s": 0.0},
    ],
)
def test_a_world_with_invalid_parameters_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InputError):
        World(**bad)  # type: ignore[arg-type]


# ---- whole runs ----------------------------------------------------------------------------------------------------


def test_a_job_that_ends_inside_a_round_ends_at_its_exact_time(tmp_path: Path) -> None:
    _, checked = run_checked(setup([job("a", samples=500.25)]), tmp_path / "journal")

    assert checked.jobs["a"].end_s == 500.25


def test_rounds_in_which_nothing_can_change_are_not_decided(tmp_path: Path) -> None:
    """Ten thousand rounds pass; only the first has anything to decide."""
    result, checked = run_checked(setup([job("a", samples=3.6e6)], "v100:1"), tmp_path / "journal")

    assert result.run.rounds == 10_000
    assert checked.records["decision"] == 1


@pytest.mark.parametrize("policy", ["fifo", "fifo-sticky", "srtf", "las", "gavel"])
def test_two_jobs_with_a_gpu_each_are_left_alone(policy: str, tmp_path: Path) -> None:
    jobs = [job("a", samples=3.6e5), job("b", samples=3.6e5)]

    _, checked = run_checked(setup(jobs, "v100:2", policy), tmp_path / "journal")

    assert checked.records["decision"] <= 5  # las: a job may move to a lower queue


def test_a_decision_follows_every_kind_of_event(tmp_path: Path) -> None:
    """An arrival while the cluster is full, and an end that makes room."""
    _, checked = run_checked(setup([job("a", samples=700.0), job("b", at=10.0)], "v100:1"), tmp_path / "journal")

    assert checked.jobs["b"].first_start_s == 720.0
    assert checked.records["decision"] == 3


def test_a_lost_job_starts_again_and_finishes(tmp_path: Path) -> None:
    world = World(mtbf_s=3000.0, repair_s=60.0, checkpoint_s=300.0, seed=3)

    result, checked = run_checked(setup([job("a", samples=20_000.0)], "v100:1", world=world), tmp_path / "journal")

    assert checked.records["lost"] > 0
    assert result.state.end_s[0] > 20_000.0


def test_a_view_grows_with_active_jobs_only() -> None:
    """Hundreds of jobs have come and gone; the view contains only the few that are active."""
    jobs = [job(f"j{i:03}", samples=300.0, at=360.0 * i) for i in range(300)]
    jobs_in_view: list[int] = []
    fifo = ROUND_POLICIES["fifo"]

    def watch(view: View, memory: None) -> tuple[Allocation, None]:
        jobs_in_view.append(view.jobs)
        assert len(view.spots) <= view.jobs
        return fifo.allocate(view, memory)

    simulate(setup(jobs, "v100:2", replace(fifo, allocate=watch)))

    assert len(jobs_in_view) >= 300
    assert max(jobs_in_view) <= 2


@settings(max_examples=20)
@given(clusters(), st.integers(0, 3))
def test_one_job_alone_takes_just_its_samples_over_its_rate(cluster: Cluster, seed: int) -> None:
    speeds = profile({"m": {"v100": 3.0, "p100": 2.0, "k80": 1.0}})
    made = setup([job("a", samples=5000.0, model="m")], cluster, "fifo", speeds, world=World(seed=seed))

    with tempfile.TemporaryDirectory() as folder:
        _, checked = run_checked(made, Path(folder) / "journal")

    assert checked.jobs["a"].end_s == pytest.approx(5000.0 / 3.0)


def test_a_cluster_of_unequal_nodes_holds_a_gang_over_several(tmp_path: Path) -> None:
    cluster = build_cluster([NodeGroup(1, "v100", 3), NodeGroup(2, "v100", 1)])

    _, checked = run_checked(setup([job("a", 5, samples=500.0)], cluster), tmp_path / "journal")

    assert checked.jobs["a"].end_s == 100.0


def test_the_short_form_is_a_cluster_like_any_other() -> None:
    assert simulate(setup([job("a")], parse_short_form("v100:1"))).state.ended == 1
