"""New models are measured before they run: in which order, at what cost, and only once."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from building import EVERY_POLICY, job, profile, setup
from fairlead.model.allocation import Level
from fairlead.model.cluster import NodeGroup, build_cluster
from fairlead.model.errors import InputError
from fairlead.policies.policy import Policy
from fairlead.rates.profile import ModelFacts
from fairlead.sim.rounds.profiling import Trial, in_the_way, plan
from fairlead.sim.truth import World
from fairlead.studies.runs.simulate import simulate

WORLD = World(profiling_s=30.0)
MIXED = build_cluster([NodeGroup(2, "k80", 2, 12.0), NodeGroup(1, "t4", 4, 16.0), NodeGroup(1, "v100", 4, 32.0)])
SPEEDS = profile(
    {m: {"k80": 1.0, "t4": 2.0, "v100": 4.0} for m in ("small", "large")},
    {"small": ModelFacts(memory_gib=4.0), "large": ModelFacts(memory_gib=14.0)},
)


def test_a_new_model_is_measured_on_every_type_that_it_fits_on_the_largest_memory_first() -> None:
    jobs = [job("a", 2, model="large", at=100.0)]

    profiling = plan(setup(jobs, MIXED, "fifo", SPEEDS, world=WORLD).truth())

    v100, t4 = MIXED.types.index("v100"), MIXED.types.index("t4")
    assert profiling.trials == (Trial(100.0, 130.0, v100, 2), Trial(130.0, 160.0, t4, 2))
    assert profiling.ready_s == (160.0,)
    assert profiling.gpu_s == 2 * 30 + 2 * 30


def test_a_model_is_measured_once_at_every_width() -> None:
    jobs = [
        job("a", 2, model="small"),
        job("b", 2, model="small", at=500.0),
        job("c", 1, model="small", at=600.0),
        job("d", 2, model="small", at=610.0),
    ]

    profiling = plan(setup(jobs, MIXED, "fifo", SPEEDS, world=WORLD).truth())

    assert len(profiling.trials) == 6
    # The second is known; the fourth waits behind the third, whose width has not been measured.
    assert profiling.ready_s == (90.0, 500.0, 690.0, 690.0)


def test_without_a_cost_jobs_can_be_scheduled_when_they_arrive() -> None:
    profiling = plan(setup([job("a", at=5.0)], MIXED, "fifo", world=World()).truth())

    assert (profiling.ready_s, profiling.trials, profiling.gpu_s) == ((5.0,), (), 0)


def test_a_trial_takes_free_gpus_before_those_of_jobs() -> None:
    """Two nodes of two GPUs: job 3 holds the first node and job 7 one GPU of the second."""
    held = [(3, ((0, 2),)), (7, ((1, 1),))]

    assert in_the_way(Trial(0.0, 30.0, 0, 1), MIXED, held) == []
    assert in_the_way(Trial(0.0, 30.0, 0, 2), MIXED, held) == [7]
    assert in_the_way(Trial(0.0, 30.0, 0, 3), MIXED, held) == [3, 7]


def test_a_running_job_pauses_for_a_trial_and_ends_that_much_later() -> None:
    """One GPU: `a` is measured 0..30, starts at 100 and is paused 150..180 for `b`, which waits until `a` ends."""
    speeds = profile({m: {"v100": 1.0} for m in "ab"})
    jobs = [job("a", samples=250.0, model="a"), job("b", samples=50.0, model="b", at=150.0)]

    result = simulate(setup(jobs, "v100:1", "fifo", speeds, world=WORLD, round_s=100.0))

    assert result.state.first_start_s[:2].tolist() == [100.0, 400.0]
    assert result.state.end_s[:2].tolist() == [100.0 + 250.0 + 30.0, 450.0]
    assert result.state.arrival_s[1] == 150.0
    assert result.profiling_gpu_s == 60.0
    assert result.profiling_share == pytest.approx(60.0 / (280.0 + 50.0))


@pytest.mark.parametrize("policy", [p for p in EVERY_POLICY if p.level is not Level.TASKS], ids=lambda p: p.name)
def test_every_policy_runs_with_profiling_and_faults(policy: Policy) -> None:
    jobs = [
        job(f"j{i}", 1 + i % 3, 2000.0, model=("small", "large")[i % 2], at=90.0 * i, tenant=f"u{i % 2}")
        for i in range(12)
    ]
    world = replace(WORLD, mtbf_s=8000.0, repair_s=300.0, seed=3)

    state = simulate(setup(jobs, MIXED, policy, SPEEDS, world=world, restart_s=10.0)).state

    assert state.active == 0
    assert state.done[: state.jobs] == pytest.approx(state.total[: state.jobs])


@pytest.mark.parametrize("seconds", [-1.0, math.nan, 1e9])
def test_a_cost_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(InputError, match="profiling takes"):
        World(profiling_s=seconds)
