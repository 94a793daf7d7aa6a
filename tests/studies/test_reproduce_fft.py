"""FFT's test bed: the setting is what it says, the measures are right, and the headline holds."""

from __future__ import annotations

import numpy as np
import pytest

from building import job, profile, setup
from fairlead.numerics.fractional import fractional_bound
from fairlead.rates.estimator import TableEstimator
from fairlead.studies.papers.costs import COSTS
from fairlead.studies.papers.fft import calibration, testbed
from fairlead.studies.papers.fft import claims as fft_claims
from fairlead.studies.papers.fft import experiment as study
from fairlead.studies.papers.fft.claim_columns import GAIN, ClaimColumn, ClaimLine, table_of
from fairlead.studies.papers.fft.runs import ALLOX, BASELINES, MAX_MIN, RANDOM, RANKED, SHORTEST, Watch, run, scattered
from fairlead.studies.papers.spread import SeedSpread
from fairlead.studies.runs.simulate import simulate
from fairlead.traces.load import seconds_per_step


def test_moving_the_largest_model_takes_the_two_minutes_of_figure_2() -> None:
    facts = testbed.profile_of(testbed.WIDTHS).facts_of("opt-6.7b@4")

    assert facts.restart_s == pytest.approx(120.0, abs=1.0)


def test_the_largest_model_fits_on_a_v100_at_four_gpus_and_everywhere_at_eight() -> None:
    rates = TableEstimator(testbed.profile_of(testbed.WIDTHS), testbed.paper_cluster())

    assert (rates.best("opt-6.7b@4", 4) > 0).tolist() == [False, False, True]
    assert (rates.best("opt-6.7b@8", 8) > 0).all()


@pytest.mark.parametrize("widths", study.TRACES.values(), ids=list(study.TRACES))
def test_the_workload_offers_the_stated_load_in_the_stated_time(widths: tuple[int, ...]) -> None:
    cluster = testbed.paper_cluster()

    trace, speeds = testbed.workload(cluster, widths, testbed.JOBS, seed=1)

    rates = TableEstimator(speeds, cluster)
    took_s = [seconds_per_step(rates, cluster, spec.model, spec.gpus) for spec in trace.jobs]
    work = sum(spec.gpus * (spec.steps or 0.0) * (s or 0.0) for spec, s in zip(trace.jobs, took_s, strict=True))
    assert {spec.gpus for spec in trace.jobs} == set(widths)
    assert work / (36 * testbed.DAYS_S) == pytest.approx(testbed.FITTED.load, rel=1e-6)
    assert trace.jobs[-1].arrival_s <= testbed.DAYS_S


@pytest.mark.parametrize("bed", study.SIMULATED_BEDS.values(), ids=list(study.SIMULATED_BEDS))
def test_traces_6_and_9_are_as_the_paper_describes_them_at_the_fitted_load(bed: testbed.Bed) -> None:
    cluster = testbed.paper_cluster()

    trace, speeds = testbed.workload(cluster, testbed.WIDTHS, testbed.JOBS, 1, bed)

    rates = TableEstimator(speeds, cluster)
    step_s = [seconds_per_step(rates, cluster, spec.model, spec.gpus) or 0.0 for spec in trace.jobs]
    took_s = np.array([(spec.steps or 0.0) * s for spec, s in zip(trace.jobs, step_s, strict=True)])
    width = np.array([spec.gpus for spec in trace.jobs])
    assert (width * took_s).sum() / (36 * testbed.DAYS_S) == pytest.approx(testbed.FITTED.load, rel=1e-6)
    if bed.within:
        assert took_s.max() / took_s.min() <= 3.0 + 1e-9
    if bed.language:
        language = np.mean([spec.model.startswith(("gpt", "opt")) for spec in trace.jobs])
        assert language == pytest.approx(0.5, abs=0.05)


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
    watch = Watch()

    state = simulate(setup(jobs, "v100:1", "fifo-sticky", round_s=100.0), tick=watch).state
    watch.finish(state)

    assert watch.fractional_s == pytest.approx(750.0)


def test_changes_of_type_are_counted_with_their_direction() -> None:
    """The second job starts on the K80 and moves to the V100 when the first has left it."""
    speeds = profile({"fast": {"v100": 4.0, "k80": 1.0}})
    jobs = [job("a", samples=400.0, model="fast"), job("b", samples=4000.0, model="fast")]
    watch = Watch()

    simulate(setup(jobs, "v100:1,k80:1", "fifo", speeds, round_s=100.0), tick=watch)

    assert (watch.changes, watch.faster) == (1, 1)


def test_on_trace_1_our_costs_are_faster_than_gavel_and_allox() -> None:
    widths = study.TRACES["trace 1, all 4 GPUs wide"]
    jct_h = {name: run(name, widths, 200, seed=0)["jct_h"] for name in (RANKED, MAX_MIN, ALLOX)}

    assert jct_h[MAX_MIN] > 1.1 * jct_h[RANKED]
    assert jct_h[ALLOX] > 1.3 * jct_h[RANKED]


def test_a_baseline_whose_gangs_are_scattered_takes_longer() -> None:
    packed, spread_out = (run(name, (4,), 100, seed=0)["jct_h"] for name in (SHORTEST, scattered(SHORTEST)))

    assert spread_out > 1.1 * packed


def test_the_whole_study_runs_and_says_something_on_every_line() -> None:
    scale = study.FftScale(jobs=16, seeds=1, large_jobs=0)
    parts = {name: measure() for name, measure in study.reproduce(scale)}

    tables = fft_claims.study(scale, parts).tables

    claims = [claim for table in tables for claim in table.claims]
    assert sum(claim.verdict is not None for claim in claims) > 15
    assert all(cell and "nan" not in cell for claim in claims for cell in claim.ours)
    assert all(row["fractional"].low >= 1.0 - 1e-9 for name in study.TRACES for row in parts[name].values())
    assert len(parts) == len(COSTS["fft"](scale))


# ---- the fit to the paper's baselines -------------------------------------------------------------------------------


def test_the_workload_is_fitted_on_seeds_that_are_not_evaluated() -> None:
    assert not set(calibration.SEEDS) & set(study.FULL.every_seed)


def test_a_figure_of_two_baselines_is_the_quotient_of_their_numbers() -> None:
    reading = calibration.BaselineReading(SHORTEST, RANDOM, calibration.ISOLATED_RUN)
    shares = {"share_at_most_1": 0.9, "share_at_most_1_isolated": 0.4, "to_faster": 0.5}
    fairness = {"mean_ftf": 9.0, "mean_ftf_isolated": 2.0, "max_ftf": 9.0, "max_ftf_isolated": 4.0}
    means = {name: {"jct_h": 2.0, "starvation_h": 1.0, **shares, **fairness} for name in BASELINES}
    means[ALLOX]["jct_h"] = 6.0
    means[RANDOM]["mean_ftf_isolated"] = 3.0

    ours = calibration.figures(means, reading)

    assert ours["JCT, AlloX / Gavel"] == 3.0
    assert ours["mean FTF, Tiresias / Gavel"] == 1.5  # by the isolated run
    assert ours["jobs with FTF at most 1, Gavel"] == 0.4


def test_the_bed_with_the_figures_of_the_paper_is_the_best_fit() -> None:
    exact = {one.name: one.paper for one in calibration.FIGURES}
    double = {name: 2.0 * value for name, value in exact.items()}
    half = {name: 0.5 * value for name, value in exact.items()}
    fits = [
        {"load": 1.0, "shortest_s": 60.0, "readings": {"a": double, "b": half}},
        {"load": 2.0, "shortest_s": 300.0, "readings": {"a": half, "b": exact}},
    ]

    bed, reading = calibration.best_fit(fits)

    assert (bed, reading) == (testbed.Bed(2.0, 300.0), "b")
    assert calibration.distances(double) == pytest.approx(calibration.distances(half))


# ---- candidates and causes ------------------------------------------------------------------------------------------


def _factors(**values: float) -> dict[str, dict[str, object]]:
    """A part of the results in which each baseline is slower than fft by a factor."""
    return {
        name: {"times_better": {"fft": {"jct_h": SeedSpread(value, value, value)}}} for name, value in values.items()
    }


def test_the_candidate_closest_to_the_paper_decides_and_the_others_are_named() -> None:
    columns = [ClaimColumn("gavel", "gavel", ("main",)), ClaimColumn("gavel-sjf", "sjf", ("main",))]

    table = table_of(
        "t", "seed 0", columns, [ClaimLine("JCT", "2x", "jct_h", GAIN, 2.0)], {"main": _factors(gavel=2.1, sjf=1.1)}
    )

    assert str(table.claims[0].verdict) == "reached (gavel); less (gavel-sjf)"
    assert not table.claims[0].causes


def test_a_cause_is_tested_in_the_column_in_which_it_is_switched_off() -> None:
    columns = [
        ClaimColumn("gavel", "gavel", ("main",)),
        ClaimColumn("high load", "gavel", ("high",), cause="the load is low", instead_of="gavel"),
    ]
    parts = {"main": _factors(gavel=1.2), "high": _factors(gavel=1.8)}

    table = table_of("t", "seed 0", columns, [ClaimLine("JCT", "2x", "jct_h", GAIN, 2.0)], parts)

    (cause,) = table.claims[0].causes
    assert cause.closes == pytest.approx(0.75)
    assert cause.explains


def test_a_column_about_a_part_that_was_not_measured_is_left_out() -> None:
    columns = [ClaimColumn("gavel", "gavel", ("main",)), ClaimColumn("trace 9", "gavel", ("main", "nine"))]

    table = table_of(
        "t", "seed 0", columns, [ClaimLine("JCT", "2x", "jct_h", GAIN, 2.0)], {"main": _factors(gavel=2.1)}
    )

    assert table.columns == ("gavel",)
