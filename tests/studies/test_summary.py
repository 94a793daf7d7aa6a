"""The numbers of a run, worked by hand."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given

from building import job, profile, setup, setups
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.runs.summary import Summary, summarise, summarise_run, summary_from_json

ONE_PER_S = profile({"m": {"v100": 1.0, "k80": 0.5}})


def summary(made: Setup) -> Summary:
    return summarise(simulate(made).state)


def two_jobs() -> Summary:
    """One V100; a runs 0..300 s, b arrives at 100 s, starts at the round 360 s and ends at 760 s."""
    jobs = [job("a", samples=300.0, model="m", tenant="x"), job("b", samples=400.0, at=100.0, model="m", tenant="y")]
    return summary(setup(jobs, "v100:1", speeds=ONE_PER_S))


def test_completion_waiting_and_starvation_times() -> None:
    numbers = two_jobs()

    assert numbers.makespan_s == 760.0
    assert numbers.jct_s["mean"] == (300.0 + 660.0) / 2
    assert numbers.jct_s["max"] == 660.0
    assert numbers.wait_s["max"] == numbers.starvation_s["max"] == 260.0
    assert numbers.wait_s["mean"] == numbers.starvation_s["mean"] == 130.0


def test_finish_time_fairness_by_the_mean_number_of_active_jobs() -> None:
    """a: 100 s alone, 200 s in two: n = 5/3, T_id = 500 s. b: 200 s in two, 460 s alone: n = 86/66."""
    numbers = two_jobs()

    a, b = 300.0 / (300.0 * 5 / 3), 660.0 / (400.0 * 860.0 / 660.0)
    assert numbers.ftf["mean"] == pytest.approx((a + b) / 2)
    assert numbers.ftf["max"] == pytest.approx(b)
    assert numbers.ftf["share_at_most_1"] == 0.5


def test_finish_time_fairness_against_the_isolated_run() -> None:
    """Halves from 100 s on: a has 200 s left and ends at 500 s; b then has 200 of 400 s done and ends at 700 s."""
    numbers = two_jobs()

    assert numbers.ftf_isolated["mean"] == pytest.approx((300.0 / 500.0 + 660.0 / 600.0) / 2)


def test_latency_ratio_is_waiting_over_the_expected_run_time() -> None:
    assert two_jobs().latency_ratio["max"] == pytest.approx(260.0 / 400.0)


def test_idle_gpus_while_waiting_are_weighted_by_time() -> None:
    """b waits 100..300 s with no GPU idle, and 300..360 s with one."""
    assert two_jobs().idle_gpus_while_waiting["mean"] == pytest.approx(60.0 / 260.0)


def test_utilisation_counts_from_the_first_arrival_to_the_last_end() -> None:
    jobs = [job("a", samples=180.0, at=720.0, model="m"), job("b", samples=360.0, at=720.0, model="m")]

    numbers = summary(setup(jobs, "v100:2", speeds=ONE_PER_S))

    assert numbers.gpu_utilisation == pytest.approx(540.0 / 720.0)
    assert numbers.mean_active_jobs == pytest.approx(540.0 / 360.0)


def test_jain_is_one_where_all_tenants_fare_alike() -> None:
    jobs = [job("a", model="m", tenant="x"), job("b", model="m", tenant="y")]

    assert summary(setup(jobs, "v100:2", speeds=ONE_PER_S)).jain_tenants == pytest.approx(1.0)


def test_a_job_that_runs_only_as_a_mix_of_types_does_not_count_for_jain() -> None:
    jobs = [job("a", 2, samples=100.0, model="m", tenant="x", relaxed=True), job("b", at=500.0, model="m", tenant="y")]
    numbers = summary(setup(jobs, "v100:1,k80:1", "hlas-rounds", speeds=ONE_PER_S))

    assert numbers.jobs_finished == 2
    assert numbers.jain_tenants == pytest.approx(1.0)


def test_a_restart_on_the_same_node_is_no_migration() -> None:
    """The older job comes back to the only GPU after the shorter one."""
    jobs = [job("a", samples=1000.0, model="m"), job("b", samples=50.0, at=10.0, model="m")]

    numbers = summary(setup(jobs, "v100:1", "srtf", ONE_PER_S))

    assert (numbers.restarts_per_job, numbers.migrations_per_job) == (0.5, 0.0)


def test_a_restart_elsewhere_is_a_migration() -> None:
    jobs = [job("a", samples=100.0, model="m"), job("b", samples=1000.0, model="m")]

    numbers = summary(setup(jobs, "v100:1,k80:1", "fifo", ONE_PER_S))

    assert (numbers.restarts_per_job, numbers.migrations_per_job) == (0.5, 0.5)


def test_restoring_a_checkpoint_is_not_waiting() -> None:
    jobs = [job("a", samples=100.0, model="m"), job("b", samples=10_000.0, model="m")]
    made = setup(jobs, "v100:1,k80:1", "fifo", ONE_PER_S, restart_s=100.0)

    numbers = summary(made)

    # 360 s on the K80 make 180 samples; then the V100, after 100 s of restoring.
    assert numbers.jct_s["max"] == pytest.approx(360.0 + 100.0 + 10_000.0 - 180.0)
    assert numbers.wait_s["max"] == 0.0


def test_a_job_too_short_for_the_clock_gives_numbers_all_the_same() -> None:
    jobs = [job("a", samples=1e-12, at=1e6, model="m"), job("b", samples=1e-12, at=1e6, model="m")]

    numbers = summary(setup(jobs, "v100:1", speeds=ONE_PER_S))

    assert "NaN" not in json.dumps(numbers.to_json(), allow_nan=False)
    assert numbers.jobs_finished == 2


@given(setups("gavel"))
def test_all_numbers_are_finite_or_null_and_hang_together(made: Setup) -> None:
    result = simulate(made)

    numbers = summarise(result.state)

    json.dumps(numbers.to_json() | summarise_run(result.run), allow_nan=False)
    assert summary_from_json(json.loads(json.dumps(numbers.to_json()))) == numbers
    if numbers.jobs_finished:
        assert numbers.gpu_utilisation is not None
        assert numbers.makespan_s is not None
        assert numbers.jain_tenants is not None
        assert 0.0 < numbers.gpu_utilisation <= 1.0 + 1e-9
        assert 0.0 <= numbers.starvation_s["max"] <= numbers.wait_s["max"] + 1e-6
        assert numbers.wait_s["max"] <= numbers.jct_s["max"] <= numbers.makespan_s + 1e-6
        assert 0.0 < numbers.jain_tenants <= 1.0 + 1e-9


def test_rounds_count_the_boundaries_at_which_a_job_was_active() -> None:
    """Active in [0, 900): boundaries 0, 360, 720. Only the first one had to be decided."""
    run = simulate(setup([job("a", samples=900.0, model="m")], "v100:1", speeds=ONE_PER_S)).run

    assert run.rounds == math.ceil(900 / 360)
    assert len(run.decision_cpu_s) == 1
