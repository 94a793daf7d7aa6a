"""FFT's test bed: the setting is what it says, the measures are right, and the headline holds."""

from __future__ import annotations

import numpy as np
import pytest

from building import job, profile, setup
from fairlead.numerics.fractional import fractional_bound
from fairlead.rates.estimator import TableEstimator
from fairlead.studies.papers.costs import COSTS
from fairlead.studies.papers.fft import claims as fft_claims
from fairlead.studies.papers.fft import experiment as study
from fairlead.studies.runs.simulate import simulate
from fairlead.traces.load import seconds_per_step


def test_moving_the_largest_model_takes_the_two_minutes_of_figure_2() -> None:
    facts = study.profile_of(study.WIDTHS).facts_of("opt-6.7b@4")

    assert facts.restart_s == pytest.approx(120.0, abs=1.0)


def test_the_largest_model_fits_on_a_v100_at_four_gpus_and_everywhere_at_eight() -> None:
    rates = TableEstimator(study.profile_of(study.WIDTHS), study.paper_cluster())

    assert (rates.best("opt-6.7b@4", 4) > 0).tolist() == [False, False, True]
    assert (rates.best("opt-6.7b@8", 8) > 0).all()


@pytest.mark.parametrize("widths", study.TRACES.values(), ids=list(study.TRACES))
def test_the_workload_offers_the_stated_load_in_the_stated_time(widths: tuple[int, ...]) -> None:
    cluster = study.paper_cluster()

    trace, speeds = study.workload(cluster, widths, study.JOBS, seed=1)

    rates = TableEstimator(speeds, cluster)
    took_s = [seconds_per_step(rates, cluster, spec.model, spec.gpus) for spec in trace.jobs]
    work = sum(spec.gpus * (spec.steps or 0.0) * (s or 0.0) for spec, s in zip(trace.jobs, took_s, strict=True))
    assert {spec.gpus for spec in trace.jobs} == set(widths)
    assert work / (36 * study.DAYS_S) == pytest.approx(study.LOAD, rel=1e-6)
    assert trace.jobs[-1].arrival_s <= study.DAYS_S


def test_the_bound_on_fractional_completion_by_hand() -> None:
    """One GPU-second a second: 10 s of work, then at 5 s one of 2 s, which goes first.

    The short job is done on average after 1 s; half of the long one after 2.5 s, the other half at (7 + 12) / 2 = 9.5 s.
    """
    bound = fractional_bound(
        np.array([0.0, 5.0]), np.array([10.0, 2.0]), np.array([[1.0], [1.0]]), np.array([1, 1]), gpus=1
    )

    assert bound == pytest.approx(1.0 + (2.5 + 9.5) / 2)


def test_no_job_is_done_sooner_than_alone_on_its_fastest_type() -> None:
    """A cluster of many GPUs: half of 10 / 2 s."""
    bound = fractional_bound(np.array([0.0]), np.array([10.0]), np.array([[1.0, 2.0]]), np.array([1]), gpus=100)

    assert bound == pytest.approx(2.5)


def test_fractional_completion_of_a_run_is_measured_exactly() -> None:
    """The first job runs 0..300, the second 300..900: 150 and 600 s on average."""
    jobs = [job("a", samples=300.0), job("b", samples=600.0)]
    watch = study.Watch()

    state = simulate(setup(jobs, "v100:1", "fifo-sticky", round_s=100.0), tick=watch).state
    watch.finish(state)

    assert watch.fractional_s == pytest.approx(750.0)


def test_changes_of_type_are_counted_with_their_direction() -> None:
    """The second job starts on the K80 and moves to the V100 when the first has left it."""
    speeds = profile({"fast": {"v100": 4.0, "k80": 1.0}})
    jobs = [job("a", samples=400.0, model="fast"), job("b", samples=4000.0, model="fast")]
    watch = study.Watch()

    simulate(setup(jobs, "v100:1,k80:1", "fifo", speeds, round_s=100.0), tick=watch)

    assert (watch.changes, watch.faster) == (1, 1)


def test_on_trace_1_our_costs_are_faster_than_gavel_and_allox() -> None:
    widths = study.TRACES["trace 1, all 4 GPUs wide"]
    jct_h = {name: study.run(name, widths, 200, seed=0)["jct_h"] for name in (study.OURS, "gavel", "allox")}

    assert jct_h["gavel"] > 1.2 * jct_h[study.OURS]
    assert jct_h["allox"] > 2.0 * jct_h[study.OURS]


def test_the_whole_study_runs_and_says_something_on_every_line() -> None:
    scale = study.FftScale(jobs=16, seeds=1, large_jobs=0)
    parts = {name: measure() for name, measure in study.reproduce(scale)}

    said = fft_claims.study(scale, parts).tables[0]

    assert len(said.claims) > 15
    assert all(cell and "nan" not in cell for claim in said.claims for cell in claim.ours)
    assert all(row["fractional"].low >= 1.0 - 1e-9 for name in study.TRACES for row in parts[name].values())
    assert len(parts) == len(COSTS["fft"](scale))
