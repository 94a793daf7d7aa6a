"""Running jobs are left alone: within a round, before `min_run` is over, and where a move gains nothing."""

from __future__ import annotations

import json
import math
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import EVERY_POLICY, Scene, job, profile, run_checked, setup, speed
from fairlead.model.allocation import Allocation, Answer, Grants, Level, Placement, Shares, Spot
from fairlead.model.arrays import NO_JOBS
from fairlead.model.cluster import NodeGroup, build_cluster
from fairlead.model.decision import Cause
from fairlead.model.view import View
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.policy import Policy
from fairlead.rates.profile import Profile
from fairlead.rounds.decide import Memory, Rules, decide

# Two GPUs on one node are twice as fast as on two.
SPREAD_HURTS = Profile("made up", (speed("m", "v100", 1.0, gpus=2), speed("m", "v100", 0.5, gpus=2, nodes=2)))
BIG_AND_TWO_SMALL = build_cluster([NodeGroup(1, "v100", 2), NodeGroup(2, "v100", 1)])


def decisions(journal: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    return [record for record in records if record.get("event") == "decision"]


def test_a_spread_job_moves_together_at_the_next_round(tmp_path: Path) -> None:
    spread = Scene([job("a", 2, model="m")], BIG_AND_TWO_SMALL, SPREAD_HURTS, held={"a": ((1, 1), (2, 1))}, now_s=360)

    decision, _ = decide(spread.view(), ROUND_POLICIES["fifo"], Memory())

    assert decision.spots == (((0, 2),),)


def test_a_spread_job_is_not_moved_together_inside_a_round() -> None:
    spread = Scene([job("a", 2, model="m")], BIG_AND_TWO_SMALL, SPREAD_HURTS, held={"a": ((1, 1), (2, 1))}, now_s=10)

    decision, _ = decide(spread.view(), ROUND_POLICIES["fifo"], Memory(), Cause.EVENT)

    assert not decision.stop.size


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf", "sia", "fft", "fft-ranked", "tiresias", "themis"])
def test_a_free_gpu_inside_a_round_goes_to_a_waiting_job_even_if_the_policy_prefers_another(policy: str) -> None:
    """The policy would give `wide` both GPUs of the node; `long` cannot be moved, so `narrow` gets the other one."""
    jobs = [job("long", samples=1e6), job("wide", 2, samples=10.0), job("narrow", samples=1e4)]
    scene = Scene(jobs, "v100:2", held={"long": ((0, 1),)}, now_s=50.0)
    made = ROUND_POLICIES[policy]

    decision, _ = decide(scene.view(policy=made), made, Memory(), Cause.EVENT)

    assert not decision.stop.size
    assert decision.start.tolist() == [2]


def test_what_a_policy_leaves_idle_stays_idle_inside_a_round() -> None:
    """The policy wanted no job on the second GPU."""
    first_only = Policy("first-only", "", "", Level.GRANTS, lambda view, memory: (_first(view), None))
    scene = Scene([job("a"), job("b")], "v100:2", held={"a": ((0, 1),)}, now_s=50.0)

    decision, _ = decide(scene.view(), first_only, Memory(), Cause.EVENT)

    assert not decision.start.size


def _first(view: View) -> Grants:
    return Grants(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))


def test_a_spread_job_is_not_moved_together_before_min_run_is_over() -> None:
    spread = Scene([job("a", 2, model="m")], BIG_AND_TWO_SMALL, SPREAD_HURTS, held={"a": ((1, 1), (2, 1))}, now_s=360)

    decision, _ = decide(spread.view(), ROUND_POLICIES["fifo"], Memory(), rules=Rules(min_run_s=361.0))

    assert not decision.stop.size


def test_a_spread_job_is_moved_together_at_the_instant_at_which_min_run_is_over() -> None:
    spread = Scene([job("a", 2, model="m")], BIG_AND_TWO_SMALL, SPREAD_HURTS, held={"a": ((1, 1), (2, 1))}, now_s=360)

    decision, _ = decide(spread.view(), ROUND_POLICIES["fifo"], Memory(), rules=Rules(min_run_s=360.0))

    assert decision.spots == (((0, 2),),)


def test_a_move_that_min_run_held_back_is_made_when_it_is_over(tmp_path: Path) -> None:
    """The first job frees the V100 in its first round; nothing else happens afterwards."""
    jobs = [job("a-short", samples=100.0, model="fast"), job("b-long", samples=100_000.0, model="fast")]
    made = setup(jobs, "v100:1,k80:1", min_run_s=1000.0)

    _, checked = run_checked(made, tmp_path / "journal")

    moves = [d["time_s"] for d in decisions(tmp_path / "journal") if "b-long" in d["stop"]]
    assert moves == [1080.0]
    assert checked.jobs["b-long"].end_s == 1080.0 + (100_000.0 - 1080.0) / 4.0


def test_a_round_that_falls_on_an_event_is_decided_once(tmp_path: Path) -> None:
    """A job that arrives on the boundary is placed by the round, not first by the event and then moved."""
    made = setup([job("a"), job("b", at=360.0)], "v100:2", when="events")

    run_checked(made, tmp_path / "journal")

    assert [(d["time_s"], d["cause"]) for d in decisions(tmp_path / "journal") if d["start"]] == [
        (0.0, "round"),
        (360.0, "round"),
    ]


def test_an_event_inside_a_round_assigns_free_gpus_at_once(tmp_path: Path) -> None:
    made = setup([job("a", samples=100.0), job("b", at=10.0)], "v100:1", when="events")

    _, checked = run_checked(made, tmp_path / "journal")

    assert checked.jobs["b"].first_start_s == 100.0


@pytest.mark.parametrize("policy", EVERY_POLICY, ids=attrgetter("name"))
def test_jobs_that_take_turns_make_progress_even_if_a_restart_takes_longer_than_a_round(
    policy: Policy, tmp_path: Path
) -> None:
    """At least half of the time is spent on work."""
    jobs = [job("a", samples=3000.0, tenant="x"), job("b", samples=3000.0, tenant="y")]

    result, _ = run_checked(setup(jobs, "v100:1", policy, restart_s=400.0, round_s=60.0), tmp_path / "journal")

    assert result.state.now_s <= 2 * 6000.0 + 800.0


def test_a_job_is_not_stopped_while_it_restores_its_state() -> None:
    scene = Scene([job("a"), job("b")], "v100:1", held={"b": ((0, 1),)}, restart_s=400.0, now_s=360.0)

    decision, _ = decide(scene.view(), ROUND_POLICIES["fifo"], Memory())

    assert not decision.stop.size
    assert decision.holds_until_s == 800.0


def idle_move() -> Scene:
    """a runs on the K80 and would gain a tenth on the V100, less than the move costs; b runs on the V100 only."""
    speeds = profile({"a": {"v100": 1.1, "k80": 1.0}, "b": {"v100": 1.0}})
    jobs = [job("a", model="a"), job("b", model="b")]
    return Scene(jobs, "v100:1,k80:1", speeds, held={"a": ((1, 1),)}, restart_s=100.0, now_s=360.0)


def test_gpus_that_a_dropped_move_leaves_go_to_a_job_that_waits() -> None:
    decision, _ = decide(idle_move().view(), ROUND_POLICIES["fifo"], Memory())

    assert not decision.stop.size
    assert (decision.start.tolist(), decision.spots) == ([1], (((0, 1),),))


def test_gpus_that_a_dropped_move_leaves_are_charged() -> None:
    """A policy that gives the whole V100 to the first job."""

    def first(view: View, memory: None) -> tuple[Shares, None]:
        return Shares(np.array([[1.0, 0.0], [0.0, 0.0]]), np.arange(2), view.job), None

    decision, memory = decide(idle_move().view(), Policy("first", "", "", Level.SHARES, first), Memory())

    assert decision.start.tolist() == [1]
    assert memory.owed.gpus.tolist() == [[0.0, 0.0], [-1.0, 0.0]]


def _not_before_noon(view: View, memory: None) -> tuple[Allocation, None]:
    if view.now_s < 43_200.0:
        return Grants(NO_JOBS, NO_JOBS, NO_JOBS, Answer(holds_until_s=43_200.0)), None
    return ROUND_POLICIES["fifo"].allocate(view, memory)


def test_a_policy_may_wait_for_a_time_with_nothing_running(tmp_path: Path) -> None:
    noon = Policy("not-before-noon", "", "", Level.GRANTS, _not_before_noon)

    _, checked = run_checked(setup([job("a")], policy=noon), tmp_path / "journal")

    assert checked.jobs["a"].first_start_s == 43_200.0


def _swap(view: View, memory: None) -> tuple[Placement, None]:
    """Whatever runs moves to the next node; the jobs of the view are on nodes 1, 2, 0."""
    spots: tuple[Spot, ...] = tuple((((j + 1) % 3, 1),) for j in range(view.jobs))
    return Placement(spots), None


SWAP = Policy("swap", "", "", Level.PLACEMENT, _swap)


def test_a_placement_gives_way_to_pinned_jobs() -> None:
    """Both old jobs are pinned; of the two nodes wanted for others one is held."""
    jobs = [job("a"), job("b"), job("c")]
    scene = Scene(jobs, "v100:3x1", held={"a": ((0, 1),), "b": ((1, 1),)}, now_s=10)

    decision, _ = decide(scene.view(), SWAP, Memory(), Cause.EVENT)

    assert not decision.stop.size
    assert not decision.start.size  # c wants node 0, which a holds


def test_a_job_that_cannot_go_where_a_pinned_one_sits_stays_where_it_is() -> None:
    scene = Scene([job("a"), job("b")], "v100:3x1", held={"a": ((0, 1),), "b": ((1, 1),)}, since={"b": 300}, now_s=360)

    decision, _ = decide(scene.view(), SWAP, Memory(), rules=Rules(min_run_s=100.0))

    assert not decision.stop.size


def test_a_placement_without_pins_is_applied_unchanged() -> None:
    scene = Scene([job("a"), job("b")], "v100:3x1", held={"a": ((0, 1),), "b": ((1, 1),)}, now_s=360)

    decision, _ = decide(scene.view(), SWAP, Memory())

    assert decision.spots == (((1, 1),), ((2, 1),))
    assert np.array_equal(decision.stop, decision.start)


HALVES = Shares(np.array([[0.5], [0.5]]), np.arange(2), np.arange(2))


def test_deficits_count_rounds_and_not_what_happens_inside_them() -> None:
    turns = Policy("turns", "", "", Level.SHARES, lambda view, memory: (HALVES, None))
    _, after_round = decide(Scene([job("a"), job("b")], "v100:1").view(), turns, Memory())
    scene = Scene([job("a"), job("b")], "v100:1", held={"a": ((0, 1),)}, now_s=10.0)

    _, after_event = decide(scene.view(), turns, after_round, Cause.EVENT)

    assert after_round.owed.gpus.tolist() == [[-0.5], [0.5]]
    assert after_event.owed is after_round.owed


def test_an_answer_holds_until_the_first_pin_expires() -> None:
    scene = Scene([job("a"), job("b")], held={"a": ((0, 1),), "b": ((0, 1),)}, since={"a": 300, "b": 330}, now_s=360)
    nothing = Grants(NO_JOBS, NO_JOBS, NO_JOBS, Answer(holds_until_s=math.inf))
    stop_all = Policy("stop-all", "", "", Level.GRANTS, lambda view, memory: (nothing, None))

    decision, _ = decide(scene.view(), stop_all, Memory(), rules=Rules(min_run_s=100.0))

    assert not decision.stop.size
    assert decision.holds_until_s == 400.0
