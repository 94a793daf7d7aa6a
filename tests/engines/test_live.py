"""The live engine, one behaviour at a time, on a virtual clock."""

from __future__ import annotations

from itertools import pairwise

import pytest
from engine_world import CLUSTER, FAST, SLOW, STEPS, Does
from virtual_world import VirtualRunner, VirtualWorld

from fairlead.engines.fleet import Fleet, Live, Story
from fairlead.engines.leases import Condition, Lease, Report, Sight
from fairlead.engines.outbox import Outbox
from fairlead.engines.progress import measure
from fairlead.engines.requests import Cancel, Command, Drain, Hold, Release, Resume, SetPolicy, SetTenant, Submit
from fairlead.model.events import (
    Cancelled,
    Finished,
    Held,
    Lost,
    NodeAdded,
    NodeDown,
    NodeUp,
    NodeUsable,
    PolicySet,
    Progress,
    Refused,
    Released,
    Started,
    Stopped,
    TenantSet,
)
from fairlead.model.handshake import CHECKPOINTED
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import HAS_GPUS, Phase


def test_nothing_is_polled_while_there_is_nothing_to_see() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    before = world.inbox.takes
    world.engine.wait(world.engine.now() + 3600)
    assert world.inbox.takes == before + 1

    world.start("a")
    before = world.inbox.takes
    world.settle(1.0)
    assert world.inbox.takes - before >= 1.0 / world.runner.capabilities.look_s


def test_a_round_that_is_due_begins_at_its_exact_time() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)

    assert world.engine.wait(360.0) == []
    assert world.engine.now() == 360.0


@pytest.mark.parametrize(("late_s", "now_s"), [(0.2, 360.0), (0.3, 360.3)])
def test_a_round_that_begins_a_little_late_counts_as_punctual_and_one_that_begins_later_does_not(
    late_s: float, now_s: float
) -> None:
    world = VirtualWorld()
    world.clock.now_s = 360.0 + late_s

    assert world.engine.wait(360.0) == []
    assert world.engine.now() == pytest.approx(now_s, abs=0.01)


def test_time_does_not_run_backwards_when_the_clock_does() -> None:
    world = VirtualWorld()
    world.clock.now_s = 100.0
    world.add("a", Does.TRAIN)
    world.clock.now_s = 50.0

    world.add("b", Does.TRAIN)

    assert world.state.specs[1].arrival_s >= 100.0


def test_a_new_policy_ends_the_loop_after_it_is_in_the_log() -> None:
    world = VirtualWorld()
    world.inbox.put(SetTenant("ann", 2.0), SetPolicy("las", {"queues": 2}), SetTenant("bob", 3.0))

    events = world.engine.wait(10.0)

    assert events is not None
    assert [type(event) for event in events] == [TenantSet, PolicySet, TenantSet]
    assert world.engine.wait(10.0) is None
    assert world.engine.wait(10.0) == []


def test_the_end_of_the_service_ends_the_loop() -> None:
    world = VirtualWorld()
    world.inbox.over = True

    assert world.engine.wait(10.0) is None


def test_a_lease_that_nobody_claims_is_taken_back() -> None:
    world = VirtualWorld()
    world.runner.claims = False
    world.add("a", Does.TRAIN)
    world.start("a")

    refused = world.until(Refused, "a", within_s=world.runner.capabilities.claim_s + 5)

    assert refused.time_s >= world.runner.capabilities.claim_s
    assert world.phase("a") is Phase.WAITING


def test_a_lease_that_is_claimed_only_after_it_was_asked_to_stop_is_asked_again() -> None:
    world = VirtualWorld()
    world.runner.claims, world.runner.claims_late = False, True
    world.add("a", Does.TRAIN)
    world.start("a")
    world.stop("a")

    stopped = world.until(Stopped, "a")

    assert stopped.time_s < 1.0  # its grace would have been 2 s
    assert world.runner.runs["a", 1].sight.code == CHECKPOINTED


def test_a_job_that_ran_in_between_is_not_refused_in_a_row() -> None:
    world = VirtualWorld()
    world.add("a", Does.NOTHING_THERE)
    broken, works = world.commands["a"], world.command(Does.TRAIN, 0)
    for command in (broken, broken, works, broken, broken):
        world.commands["a"] = command
        world.start("a")
        if command is broken:
            world.until(Refused, "a")
        else:
            world.until(Started, "a")
            world.stop("a")
            world.until(Stopped, "a")

    assert world.phase("a") is Phase.WAITING


def test_a_job_that_heard_a_request_to_stop_is_not_asked_again() -> None:
    """A second signal would interrupt a script that saves while it handles the first."""
    world = VirtualWorld()
    heard: list[bool] = []
    ask = world.runner.ask_to_stop

    def noted(lease: Lease) -> bool:
        heard.append(ask(lease))
        return heard[-1]

    world.runner.ask_to_stop = noted  # type: ignore[method-assign]
    world.add("a", Does.DEAF)
    world.start("a")
    world.stop("a")  # before it was claimed
    world.until(Stopped, "a")

    assert heard == [False, True]


def test_a_lease_that_was_never_claimed_before_a_restart_is_taken_back() -> None:
    world = VirtualWorld()
    world.runner.claims = False
    world.add("a", Does.TRAIN)
    world.start("a")
    world.restart()
    world.until(Lost, "a")
    world.runner.claims = True

    world.start("a")
    world.until(Started, "a")

    assert world.alive("a") == 1
    assert world.state.leases[0] == 2


def test_a_hold_that_is_taken_back_before_it_happened_still_frees_the_gpus() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.ask(Hold("a"))
    world.ask(Release("a"))

    world.until(Held, "a")
    world.until(Released, "a")

    assert world.phase("a") is Phase.WAITING
    assert world.state.node_free.tolist() == [2, 1]


def test_a_job_that_finishes_while_its_node_is_drained_does_not_run_again() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.settle(STEPS / 20 - 0.25)  # it will be through before it has noticed
    world.ask(Drain("v100-1"))
    world.settle(1.0)
    assert world.phase("a") is Phase.WAITING

    world.start("a", 1)

    world.until(Finished, "a")
    assert len(world.runner.runs) == 1


def test_a_job_of_unknown_length_that_finishes_while_its_node_is_drained_has_done_what_it_reported() -> None:
    world = VirtualWorld()
    world.commands["a"] = world.command(Does.TRAIN, 0)
    world.ask(Submit(JobSpec("a", "t", "m", 0.0, 1, None), world.commands["a"]))
    world.start("a")
    world.until(Started, "a")
    world.settle(STEPS / 20 - 0.25)  # it ends before it notices
    world.ask(Drain("v100-1"))
    world.settle(1.0)

    world.start("a", SLOW)
    assert world.until(Finished, "a").samples.tolist() == [STEPS]


def test_a_move_whose_stop_was_not_written_down_before_the_crash_is_adopted() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.settle(0.5)
    world.move("a", 1)
    forgotten = world.engine.wait(world.engine.now() + 5.0)
    assert forgotten is not None
    assert isinstance(forgotten[0], Stopped)
    # The new lease came up all the same: as if the log's disk had lagged behind.
    old = world.runner.runs["a", 1].lease
    world.runner.launch(type(old)("a", 2, (type(old.gpus[0])("k80-1", "k80", 0),), old.command))
    world.clock.now_s += 0.1
    world.restart()

    world.until(Stopped, "a")
    world.until(Started, "a")

    assert world.alive("a") == 1
    assert len(world.runner.runs) == 2
    assert world.told[-2].samples[0] > 0  # type: ignore[union-attr]


def test_a_drained_node_stays_drained_when_it_answers_again() -> None:
    world = VirtualWorld()
    world.add("a", Does.DEAF)
    world.start("a", SLOW)  # while something runs, the engine looks
    world.until(Started, "a")
    world.lose_node(FAST)
    world.until(NodeDown)
    world.ask(Drain("v100-1"))
    world.find_node(FAST)
    world.settle(0.5)
    assert not world.state.node_up[FAST]

    world.restart()
    world.settle(0.5)
    assert not world.state.node_up[FAST]
    world.ask(Resume("v100-1"))

    assert world.state.node_up[FAST]


def test_has_gpus_means_what_the_engine_thinks() -> None:
    """A job in any of these phases has a lease or is about to get one; a restart goes through exactly these."""
    assert set(HAS_GPUS) == {Phase.STARTING, Phase.RUNNING, Phase.STOPPING, Phase.MOVING}


# ---- nodes that do not answer ------------------------------------------------------------------------------------------


def test_a_copy_on_a_silent_node_that_outlives_its_kill_is_not_waited_for() -> None:
    world = VirtualWorld()
    world.runner.unreachable.add("v100-1")
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.lose_node(FAST)
    world.until(Lost, "a")
    assert world.runs["a", 1].sight.condition is Condition.RUNNING  # the kill did not get there

    world.start("a", SLOW)
    world.until(Started, "a")

    assert world.runs["a", 2].sight.condition is Condition.RUNNING


def test_a_job_on_a_silent_node_is_cancelled_although_its_processes_outlive_the_kill() -> None:
    world = VirtualWorld()
    world.runner.unreachable.add("v100-1")
    world.add("a", Does.DEAF)
    world.start("a")
    world.until(Started, "a")
    world.ask(Cancel("a"))
    world.lose_node(FAST)

    world.until(Cancelled, "a")


def test_a_gpu_of_a_node_that_is_back_is_not_given_away_while_a_stray_copy_uses_it() -> None:
    """The runner refuses to share a slot."""
    world = VirtualWorld()
    world.runner.unreachable.add("v100-1")
    for id_ in ("a", "b"):
        world.add(id_, Does.DEAF)
    world.start("a")
    world.until(Started, "a")
    world.lose_node(FAST)
    world.until(Lost, "a")
    world.find_node(FAST)
    world.until(NodeUp)

    world.start("b")
    world.until(Started, "b")

    slots = [world.runs[id_, 1].lease.gpus[0].slot for id_ in ("a", "b")]
    assert slots == [0, 1]


def test_a_lease_that_begins_while_it_is_taken_back_after_a_restart_is_not_forgotten() -> None:
    """Its GPU is not given to another job; the runner would complain about two leases on it."""
    world = VirtualWorld()
    world.runner.claims = False
    world.add("a", Does.DEAF)
    world.start("a", FAST)
    world.ask(Drain(CLUSTER.nodes[FAST]))
    world.until(Lost, "a")
    world.runner.unreachable.add(CLUSTER.nodes[FAST])  # nothing can be killed there for now
    world.runner.claims_late = True

    world.restart()
    world.runner.claims, world.runner.claims_late = True, False
    world.ask(Resume(CLUSTER.nodes[FAST]))
    world.until(NodeUp)
    world.add("b", Does.TRAIN)
    world.start("b", FAST)
    world.until(Finished, "b")

    assert world.alive("a") == 1


def test_progress_that_was_not_saved_does_not_count_as_safe_after_a_restart() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Progress, "a")
    run = world.runner.runs["a", 1]
    report = run.sight.report
    assert report is not None
    assert report.step

    def vanishes() -> None:
        run.sight = Sight(Condition.VANISHED, report=Report(report.at_s, report.step))

    world.restart(while_away=vanishes)

    assert world.until(Lost, "a").samples.tolist() == [0.0]


def test_a_stray_copy_keeps_its_gpu_also_after_a_restart() -> None:
    world = VirtualWorld()
    world.runner.unreachable.add("v100-1")
    for id_ in ("a", "b"):
        world.add(id_, Does.DEAF)
    world.start("a")
    world.until(Started, "a")
    world.lose_node(FAST)
    world.until(Lost, "a")
    world.start("a", SLOW)
    world.until(Started, "a")

    world.restart()
    world.find_node(FAST)
    world.ask(Resume("v100-1"))
    world.settle(0.5)
    world.start("b")
    world.until(Started, "b")

    slots = [world.runs[key].lease.gpus[0].slot for key in (("a", 1), ("b", 1))]
    assert slots == [0, 1]


def test_what_was_killed_in_vain_is_killed_again_every_few_seconds() -> None:
    world = VirtualWorld()
    world.runner.unreachable.add("v100-1")
    kills: list[float] = []
    kill = world.runner.kill

    def noted(lease: Lease) -> None:
        kills.append(world.clock.now_s)
        kill(lease)

    world.runner.kill = noted  # type: ignore[method-assign]
    world.add("a", Does.DEAF)
    world.start("a")
    world.until(Started, "a")
    world.stop("a")
    world.settle(14.0)

    assert [round(later - earlier) for earlier, later in pairwise(kills)] == [5, 5]
    assert world.phase("a") is Phase.STOPPING


def test_what_a_stray_copy_does_in_the_end_is_not_the_story_of_its_successor() -> None:
    """The successor was stopped; the stray copy, which ended later, failed."""
    fleet = Fleet(VirtualRunner(lambda: 0.0))
    first, second = (Live(Lease("a", number, (), Command("x")), 0, 0.0, 0.0) for number in (1, 2))
    fleet.add(first)
    fleet.add(second)

    fleet.remove(second, Sight(Condition.ENDED, CHECKPOINTED))
    fleet.remove(first, Sight(Condition.ENDED, 3))

    assert fleet.story(0, "a", 2) == Story(failures=0, finished=False)


@pytest.mark.parametrize(
    ("end", "failures"),
    [
        (Sight(Condition.ENDED, 3), 1),
        (Sight(Condition.ENDED, 143, asked=True), 0),  # it died because it was asked to stop
        (Sight(Condition.ENDED, CHECKPOINTED), 0),
        (Sight(Condition.VANISHED), 0),
    ],
)
def test_only_an_error_that_nobody_asked_for_counts_as_a_failure(end: Sight, failures: int) -> None:
    fleet = Fleet(VirtualRunner(lambda: 0.0))
    live = Live(Lease("a", 1, (), Command("x"), failures=2), 0, 0.0, 0.0)
    fleet.add(live)
    fleet.remove(live, end)

    assert fleet.story(0, "a", 1) == Story(2 + failures, finished=False)


# ---- small things that matter ------------------------------------------------------------------------------------------


def test_a_job_that_ran_before_makes_progress_only_after_its_restart_cost() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    first = world.until(Started, "a")
    world.stop("a")
    world.until(Stopped, "a")
    world.state.restart_s[0] = 7.0  # whatever the first start has cost
    world.start("a")
    second = world.until(Started, "a")

    assert [float(event.resume_s[0]) - event.time_s for event in (first, second)] == [0.0, 7.0]


def test_a_job_that_is_lost_before_its_move_leaves_no_start_behind() -> None:
    world = VirtualWorld()
    world.add("a", Does.DEAF)
    world.start("a")
    world.until(Started, "a")
    world.move("a", SLOW)
    world.lose_node(SLOW)
    world.until(Lost, "a")
    world.settle(5.0)  # its old lease is killed
    before = world.inbox.takes

    world.engine.wait(world.engine.now() + 3600)

    assert world.inbox.takes == before + 1  # there is nothing to poll for


def test_an_engine_looks_although_the_clock_was_set_back() -> None:
    world = VirtualWorld()
    world.clock.now_s = 1000.0
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.clock.now_s = 50.0
    world.lose_sight("a")

    world.until(Lost, "a")

    assert world.clock.now_s < 60.0


def test_a_job_that_is_being_cancelled_cannot_be_held() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.ask(Cancel("a"))
    world.ask(Hold("a"))

    world.until(Cancelled, "a")

    assert world.phase("a") is Phase.CANCELLED


def test_a_report_that_is_seen_twice_is_one_measurement() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    live = Live(Lease("a", 1, (), Command("x")), 0, 0.0, 0.0)

    measured = [measure(world.state, live, Report(at_s, step=10 * at_s), every_s=0.0) for at_s in (1.0, 1.0, 3.0)]

    assert measured == [None, None, (30.0, 10.0)]


def test_events_that_are_not_folded_yet_count() -> None:
    state = VirtualWorld().state
    outbox = Outbox(state)
    outbox.put(NodeUsable(0.0, FAST, 1))
    outbox.put(NodeDown(0.0, SLOW))
    assert (outbox.usable(FAST), outbox.node_up(SLOW)) == (1, False)

    for event in outbox.take():
        state.fold(event)
    outbox.clear_folded()

    assert (outbox.usable(FAST), outbox.node_up(SLOW)) == (1, False)
    assert not outbox.waiting


def test_nodes_that_join_before_any_is_folded_get_the_positions_that_the_fold_gives_them() -> None:
    state = VirtualWorld().state
    outbox = Outbox(state)
    for name in ("new-1", "new-2", "new-3"):
        outbox.put(NodeAdded(0.0, name, "v100", 2, 16.0))
    expected = [outbox.node(name) for name in ("new-1", "new-2", "new-3")]

    for event in outbox.take():
        state.fold(event)

    assert expected == [state.cluster.nodes.index(name) for name in ("new-1", "new-2", "new-3")]


def test_leases_that_still_run_are_adopted_after_a_restart_before_anything_is_launched() -> None:
    story: list[str] = []

    class Adopting(VirtualRunner):
        def adopt(self, lease: Lease) -> None:
            story.append(f"adopt {lease.job}")

        def launch(self, lease: Lease) -> None:
            story.append(f"launch {lease.job}")
            super().launch(lease)

    world = VirtualWorld()
    world.runner = Adopting(world.clock)
    world.connect()
    for job, node in (("a", FAST), ("b", SLOW)):
        world.add(job, Does.TRAIN)
        world.start(job, node)
        world.until(Started, job)
    world.add("c", Does.TRAIN)
    world.decide((), {"c": FAST}, apply=False)

    world.restart(while_away=lambda: world.runner.kill(world.runner.runs["b", 1].lease))
    world.until(Started, "c")

    assert story == ["launch a", "launch b", "adopt a", "launch c"]


def test_a_cancellation_that_was_taken_before_a_restart_comes_before_the_resumed_start() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    world.decide((), {"a": FAST}, apply=False)
    world.inbox.put(Cancel("a"))
    world.restart()

    world.until(Cancelled, "a")

    assert world.runner.recall(("a", 1)) is None
