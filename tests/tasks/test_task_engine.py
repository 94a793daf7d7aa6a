"""Single tasks under the same contract as rounds: the same trace, profile and world, the same events and state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import TASK_POLICIES, job, profile, run_checked, setup, setups, speed
from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.model.events import Served
from fairlead.model.jobs import JobSpec
from fairlead.model.tasks import Instance, Known, Rule, Sized, TaskPlan
from fairlead.policies import as_round_policy
from fairlead.policies.policy import Knows, TaskPolicy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import Profile
from fairlead.rates.spot import spot_rate
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.loop import Switching
from fairlead.sim.tasks.check import violations
from fairlead.sim.tasks.engine import dispatch
from fairlead.sim.tasks.jobs import TaskJobs, as_tasks
from fairlead.sim.truth import World
from fairlead.studies.fairness.journal_audit import audit_journal
from fairlead.studies.policy_lab.policy_worlds import FACTS
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.runs.summary import summarise

every_task_policy = pytest.mark.parametrize("policy", TASK_POLICIES, ids=attrgetter("name"))
# Wide jobs are slower per GPU, and more so when spread; four GPUs of a P100 node are slower than two.
SCALING = Profile(
    "made up",
    tuple(
        speed("m", gpu, rate * part, gpus=gpus, nodes=nodes, batch=16.0)
        for gpu, rate in (("v100", 2.0), ("p100", 0.9))
        for gpus, nodes, part in ((1, 1, 1.0), (2, 1, 0.9), (4, 1, 0.8), (4, 2, 0.6), (8, 2, 0.3))
    ),
)


def tasks_of(made: Setup, **more: Any) -> TaskJobs:
    return as_tasks(made.truth(), made.estimator(), made.settings, **more)


@every_task_policy
@given(
    width=st.sampled_from((1, 2, 3, 4, 8)),
    gpus=st.sampled_from(("v100:8", "p100:8", "v100:8x8", "p100:8x2", "v100:8x1")),
    steps=st.floats(0.5, 1e5),
)
def test_k_equal_gpus_together_have_exactly_the_rate_of_the_gang_on_the_same_nodes(
    policy: TaskPolicy, width: int, gpus: str, steps: float
) -> None:
    spec = replace(job("a", width, model="m"), steps=steps)

    by_task, gang = (simulate(setup([spec], gpus, one, SCALING)).state.end_s[0] for one in (policy, "fifo"))

    assert by_task == pytest.approx(gang, rel=1e-9)


@every_task_policy
@given(data=st.data())
def test_every_schedule_is_feasible(policy: TaskPolicy, data: st.DataObject) -> None:
    made = data.draw(setups(policy))
    if made.trace.jobs:
        jobs = tasks_of(made)

        assert violations(jobs.true, dispatch(jobs, policy), jobs.pace) == []


def test_a_task_is_about_a_minute_on_the_fastest_type_and_steps_are_grouped_for_that() -> None:
    made = setup([job("a", 2, 20_000.0, model="fast"), job("b", 1, 3.0, model="fast")], "v100:2,k80:2")

    jobs = tasks_of(made)

    assert jobs.true.known.task_s.tolist() == [[60.0, 240.0], [60.0, 240.0]]
    assert jobs.true.rounds.tolist() == [42, 1]  # 20,000 samples, 480 a round; 3 samples
    np.testing.assert_allclose(jobs.true.last, [320 / 480, 3 / 240])
    assert jobs.true.tasks @ jobs.samples - (1 - jobs.true.last) @ (jobs.samples * [2, 1]) == pytest.approx(20_003.0)


def test_a_step_that_is_longer_than_a_minute_is_a_task() -> None:
    jobs = tasks_of(setup([job("a", model="slow")], "v100:1", speeds=profile({"slow": {"v100": 0.01}})))

    assert jobs.true.known.task_s.tolist() == [[100.0]]


@given(st.floats(0.01, 1e6), st.floats(0.01, 1e6))
def test_what_can_be_known_about_tasks_does_not_depend_on_lengths(one: float, other: float) -> None:
    known = [
        tasks_of(setup([job("a", 2, samples, model="fast")], "v100:2,k80:1")).believed.known for samples in (one, other)
    ]

    assert known[0].task_s.tolist() == known[1].task_s.tolist()
    assert known[0].switch_s.tolist() == known[1].switch_s.tolist()


def test_steps_are_grouped_further_if_there_would_be_too_many_tasks() -> None:
    made = setup([job(f"j{i}", 1, 60.0 * 1000) for i in range(10)], "v100:2")

    assert int(tasks_of(made).true.tasks.sum()) == 10_000
    few = tasks_of(made, most=500)
    assert int(few.true.tasks.sum()) <= 500
    assert few.task_s.min() >= 1200.0


def test_a_job_runs_only_where_it_can(tmp_path: Path) -> None:
    """`v` has a speed only on V100, `heavy` needs the memory of a V100, and `even` may use only K80."""
    speeds = Profile("made up", (*profile({"v": {"v100": 1.0}}).speeds, *profile(
        {name: {"v100": 1.0, "k80": 1.0} for name in ("heavy", "even")}).speeds), FACTS)  # fmt: skip
    jobs = [job("a", 2, 900.0, model="v"), job("b", 2, 900.0, model="heavy"), job("c", 2, 900.0, types=("k80",))]
    for policy in TASK_POLICIES:
        simulate(setup(jobs, "k80:4,v100:2", policy, speeds), tmp_path / "journal")

        for event in JournalReader(tmp_path / "journal").records():
            if isinstance(event, Served):
                for j, (k80, v100) in zip(event.jobs.tolist(), event.gpus.tolist(), strict=True):
                    assert (v100 if j == 2 else k80) == 0.0


def test_tasks_on_a_slow_server_take_longer() -> None:
    world = World(server_factor=(0.5, 0.5))

    slow, plain = (
        simulate(setup([job("a", 2, 9000.0)], "v100:2", "hlas", world=w)).state.end_s[0] for w in (world, None)
    )

    assert slow == pytest.approx(2 * plain)


def test_failing_nodes_are_refused() -> None:
    with pytest.raises(InputError, match="leave out --mtbf"):
        simulate(setup([job("a")], "v100:2", "hlas", world=World(mtbf_s=1000.0)))


@pytest.mark.parametrize("policy", TASK_POLICIES, ids=attrgetter("name"))
def test_a_round_cannot_be_decided_by_a_policy_for_tasks(policy: TaskPolicy) -> None:
    with pytest.raises(InputError, match="which only the simulator runs; use one of fifo, "):
        as_round_policy(policy)


def test_a_policy_that_returns_no_plan_is_refused_with_a_hint_for_its_author() -> None:
    def nothing(known: Known) -> TaskPlan:
        return None  # type: ignore[return-value]

    with pytest.raises(InputError, match="policy none returned None; plan must return a TaskPlan"):
        simulate(setup([job("a")], policy=TaskPolicy("none", "", "", nothing)))


@given(gpus=st.lists(st.sampled_from(range(16)), min_size=4, max_size=4, unique=True))
def test_a_round_takes_as_long_as_a_step_of_a_spot_on_its_nodes(gpus: list[int]) -> None:
    """Four tasks on four GPUs of any nodes: rates/spot.py has the only rate of a spot."""
    made = setup([job("a", 4, model="m")], "v100:8x2,p100:8x2", speeds=SCALING)
    cluster, known = made.cluster, tasks_of(made).true.known
    types = tasks_of(made).true.type_of[gpus]
    nodes = Counter(known.node_of[gpus].tolist())

    round_s = max(known.task_s[0, t] + known.spread_sync_s[0, t, len(nodes) - 1] for t in types.tolist())

    by_type = {t: TableEstimator(SCALING, cluster).at("m", t, 4, len(nodes)) for t in set(types.tolist())}
    samples = float(tasks_of(made).samples[0]) * 4
    assert round_s == pytest.approx(max(samples / rate for rate in by_type.values()))
    if len(by_type) == 1:
        spot = tuple(sorted(nodes.items()))
        rate = spot_rate(partial(TableEstimator(SCALING, cluster).at, "m"), spot, cluster.type_of)
        assert round_s == pytest.approx(samples / rate)


def test_tasks_of_a_round_on_several_nodes_pay_for_it() -> None:
    """Four GPUs on two nodes run at 0.6 / 0.8 of the rate of four GPUs on one node."""
    jobs = [replace(job("a", 4, model="m"), steps=1e5)]

    together, apart = (simulate(setup(jobs, gpus, "hlas", SCALING)).state.end_s[0] for gpus in ("v100:4", "v100:4x2"))

    assert apart == pytest.approx(together * 0.8 / 0.6)


def test_a_round_is_kept_together_where_there_is_room() -> None:
    """A job of one GPU holds part of the first node, and a job of four GPUs fits on the second one."""
    jobs = [job("a", 1, 90_000.0, model="m"), replace(job("b", 4, model="m", at=30.0), steps=1e4)]

    for policy in TASK_POLICIES:
        result = simulate(setup(jobs, "v100:8", policy, SCALING))

        alone = simulate(setup(jobs[1:], "v100:4", policy, SCALING)).state.end_s[0]
        assert result.state.end_s[1] == pytest.approx(alone)
        assert any(note.endswith("; 0% of them in rounds that ran on several nodes") for note in result.run.notes)


@pytest.mark.parametrize("policy", ["hare-online", "hare"])
def test_a_job_that_returns_to_a_gpu_pays_its_restart_as_in_rounds(policy: str) -> None:
    """A short job interrupts a long one: the first start of each is free, and the return costs one restart."""
    jobs = [job("long", samples=7200.0), job("short", samples=600.0, at=600.0)]

    ends = [
        simulate(setup(jobs, "v100:1", one, restart_s=30.0, round_s=60.0)).state.end_s[:2] for one in (policy, "srtf")
    ]

    np.testing.assert_allclose(ends[0], ends[1])
    np.testing.assert_allclose(ends[0], [7800.0 + 30.0, 1200.0])


def test_fast_switching_costs_a_part_of_a_task_instead_of_a_restart() -> None:
    jobs = [job("long", samples=7200.0), job("short", samples=600.0, at=600.0)]

    fast = simulate(setup(jobs, "v100:1", "hare-online", restart_s=45.0, switching=Switching.FAST)).state.end_s[:2]

    np.testing.assert_allclose(fast, [7800.0 + 2 * 0.03 * 60.0, 1200.0 + 0.03 * 60.0])


def test_a_task_lasts_as_long_as_a_job_keeps_its_gpus_elsewhere() -> None:
    jobs = [job("a", model="fast")]

    def task_s(**more: Any) -> float:
        return float(tasks_of(setup(jobs, "v100:2", **more)).true.known.task_s[0, 0])

    assert task_s() == task_s(restart_s=30.0) == 60.0
    assert task_s(restart_s=400.0) == 800.0
    assert task_s(restart_s=400.0, switching=Switching.FAST) == 60.0
    assert task_s(min_run_s=500.0) == 500.0


def test_a_run_states_the_rules_that_runs_in_rounds_do_not_have() -> None:
    def names(*jobs: JobSpec, policy: str = "hlas", **more: Any) -> list[str]:
        return [rule.name for rule in simulate(setup(jobs, "v100:4", policy, **more)).run.assumed]

    relaxed = replace(job("a", 2), relaxed=True)
    assert names(job("a", 2), policy="fifo") == []
    assert names(job("a", 1)) == ["single tasks"]
    assert names(relaxed) == ["single tasks", "overlap"]
    assert names(relaxed, job("b", 2)) == ["single tasks", "overlap", "all relaxed"]
    assert names(job("a", 1), switching=Switching.FAST) == ["single tasks", "fast switching"]


@every_task_policy
def test_a_policy_sees_lengths_and_arrival_times_only_if_it_declares_them(policy: TaskPolicy) -> None:
    shown: list[object] = []

    def plan(jobs: Any) -> TaskPlan:
        shown.append(jobs)
        return cast(Callable[[Any], TaskPlan], policy.plan)(jobs)

    simulate(setup([job("a"), job("b", 2, at=60.0), job("c", at=120.0)], "v100:2", replace(policy, plan=plan)))

    assert shown
    for jobs in shown:
        assert hasattr(jobs, "rounds") == (Knows.LENGTHS in policy.knows)
        assert hasattr(jobs, "arrival_s") == (Knows.ARRIVALS in policy.knows)
        assert not hasattr(jobs.known if hasattr(jobs, "known") else jobs, "arrival_s")


def _by_later_jobs(known: Known) -> TaskPlan:
    """The key of each job is the width of the last job of all."""
    return TaskPlan((("peeks", Rule(np.full(known.jobs, known.scale[-1]), np.zeros(known.jobs))),))


def _by_number_of_jobs(jobs: Sized) -> TaskPlan:
    nothing = np.zeros(jobs.jobs)
    return TaskPlan((("counts", Rule(nothing, nothing, sigma=1.0 + jobs.jobs)),))


def _in_one_list(jobs: Sized) -> TaskPlan:
    return TaskPlan((("list", np.repeat(np.arange(jobs.jobs), jobs.rounds)),))


@pytest.mark.parametrize(
    ("plan", "knows"),
    [(_by_later_jobs, ()), (_by_number_of_jobs, (Knows.LENGTHS,)), (_in_one_list, (Knows.LENGTHS,))],
)
def test_a_plan_that_depends_on_jobs_that_have_not_arrived_is_refused(plan: Any, knows: tuple[Knows, ...]) -> None:
    jobs = [job("a"), job("b", at=60.0), job("c", 2, at=120.0)]

    with pytest.raises(InputError, match="plans the first 1 jobs differently if it sees later ones"):
        simulate(setup(jobs, "v100:2", TaskPolicy("peeks", "", "", plan, frozenset(knows))))


def test_jobs_that_arrive_together_may_be_planned_together() -> None:
    state = simulate(setup([job("a"), job("b")], "v100:2", TaskPolicy("peeks", "", "", _by_later_jobs))).state

    assert summarise(state).jobs_finished == 2


def test_arrivals_without_lengths_cannot_be_declared() -> None:
    with pytest.raises(InputError, match="declares arrivals without lengths"):
        TaskPolicy("half", "", "", _by_later_jobs, frozenset({Knows.ARRIVALS}))


@pytest.mark.parametrize("policy", [p for p in TASK_POLICIES if Knows.ARRIVALS not in p.knows], ids=attrgetter("name"))
@given(data=st.data())
def test_a_policy_that_does_not_know_arrivals_does_not_depend_on_later_jobs(
    policy: TaskPolicy, data: st.DataObject
) -> None:
    made = data.draw(setups(policy))
    if policy.name == "plug-in-tasks" or not made.trace.jobs:
        return
    later_s = made.trace.jobs[-1].arrival_s
    some = tuple(spec for spec in made.trace.jobs if spec.arrival_s < later_s)
    world = replace(made.world, length_error=0.0)  # drawn job by job
    if not some:
        return

    one, other = (
        dispatch(tasks_of(replace(made, trace=replace(made.trace, jobs=jobs), world=world)), policy)
        for jobs in (made.trace.jobs, some)
    )

    for column in ("job", "round", "task", "gpu", "start_s", "end_s"):
        np.testing.assert_array_equal(
            getattr(one, column)[one.start_s < later_s], getattr(other, column)[other.start_s < later_s]
        )


def test_only_a_policy_that_knows_everything_may_try_several_plans() -> None:
    def two(jobs: Instance) -> TaskPlan:
        rule = Rule(np.zeros(jobs.jobs), np.zeros(jobs.jobs))
        return TaskPlan((("one", rule), ("other", rule)))

    with pytest.raises(BrokenInvariantError, match="does not know all jobs"):
        simulate(setup([job("a")], policy=TaskPolicy("two", "", "", two, frozenset({Knows.LENGTHS}))))


def test_gpu_time_is_counted_task_by_task(tmp_path: Path) -> None:
    """Two jobs with one task each share a GPU: both hold half of it on average, and it is never idle."""
    jobs = [job("a", 1, 3600.0, tenant="x"), job("b", 1, 3600.0, tenant="y")]
    result, _ = run_checked(setup(jobs, "v100:1", "hlas", restart_s=0.0), tmp_path / "journal")

    summary = summarise(result.state)

    assert summary.gpu_utilisation == pytest.approx(1.0)
    assert summary.tenants["x"].gpu_hours == summary.tenants["y"].gpu_hours == pytest.approx(1.0)
    assert summary.wait_s["mean"] == pytest.approx(summary.jct_s["mean"] - 3600.0)
    assert summary.idle_gpus_while_waiting["mean"] == pytest.approx(0.0, abs=0.05)  # averages over a round


def test_an_audit_reads_what_was_held_task_by_task(tmp_path: Path) -> None:
    """Each tenant has two jobs that need the one GPU, so each gets about half of it."""
    jobs = [job(f"{tenant}{i}", 1, 36_000.0, tenant=tenant) for i in range(2) for tenant in "xy"]
    simulate(setup(jobs, "v100:1", "hlas", restart_s=0.0), tmp_path / "journal")

    audit = audit_journal(tmp_path / "journal")

    assert audit.tenants["x"].gpu_hours["v100"] == pytest.approx(20.0)
    assert audit.min_sharing_incentive is not None
    assert audit.min_sharing_incentive > 0.6
    assert audit.max_envy is not None


def test_the_plan_made_in_advance_is_no_worse_than_the_one_without_foresight() -> None:
    jobs = [job(f"j{i}", 1 + i % 4, 9000.0 * (1 + i % 5), at=300.0 * i, model="fast") for i in range(24)]

    ahead, online = (
        simulate(setup(jobs, "v100:4,p100:4,k80:4", name)).state.end_s[:24].sum() for name in ("hare", "hare-online")
    )

    assert ahead <= online * (1 + 1e-9)
