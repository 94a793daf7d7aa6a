"""Start estimates: ranges over futures, and how often they hold the truth."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from building import job, setup
from fairlead.model.cluster import parse_short_form
from fairlead.model.jobs import JobSpec
from fairlead.numerics.random import stream
from fairlead.rounds.state import State
from fairlead.studies.calibration.start_ranges import QUICK, _without_lengths, calibrate, windows
from fairlead.studies.compare.workloads import Generated, from_generator
from fairlead.studies.runs.origin import Origin, journal_origin
from fairlead.studies.runs.simulate import simulate
from fairlead.studies.what_if.estimates import StartRange, chance_of, range_of, start_ranges, waiting_jobs
from fairlead.traces.profiles import load_default_profile


def queue_in_order(path: Path, time_s: float = 30.0) -> tuple[Origin, dict[str, float]]:
    """The state at a time under fifo, as of a live service, and when each job first starts; five have ended by 800 s."""
    jobs = [job(f"j{i}", 2, 100.0 * (i + 1), at=float(i)) for i in range(8)]
    result = simulate(setup(jobs, "v100:2", round_s=10.0), path)
    origin = replace(journal_origin(path, time_s), future=(), true_steps={}, carried=None, journal=None)
    starts_s = dict(zip((spec.id for spec in jobs), result.state.first_start_s.tolist(), strict=False))
    return origin, starts_s


def test_a_range_holds_another_draw_as_often_as_it_states() -> None:
    draws = stream(0, "draws").exponential(size=(4000, 11))
    held = [_holds(range_of(past), truth) for *past, truth in draws.tolist()]
    assert np.mean(held) == pytest.approx(chance_of(10), abs=0.02)
    assert chance_of(10) == pytest.approx(9 / 11)
    assert chance_of(4) == pytest.approx(3 / 5)
    assert abs(chance_of(40) - 0.8) < 0.03


def _holds(one: StartRange, truth_s: float) -> bool:
    assert one.low_s is not None
    assert one.high_s is not None
    return one.low_s <= truth_s <= one.high_s


def test_a_job_that_does_not_start_in_time_has_an_open_range() -> None:
    assert range_of([1.0, math.inf, 2.0, 3.0]) == StartRange(1.0, None)
    assert range_of([math.inf] * 4) == StartRange(None, None)


def test_with_declared_lengths_and_service_in_order_the_estimate_is_the_truth(tmp_path: Path) -> None:
    origin, starts_s = queue_in_order(tmp_path / "run.jsonl")
    estimates = start_ranges(origin).ranges

    assert set(estimates) == set(waiting_jobs(origin.state)) == {f"j{i}" for i in range(1, 8)}
    for id_, one in estimates.items():
        assert one.low_s == one.high_s == pytest.approx(starts_s[id_] - 30.0)


def test_unknown_lengths_make_a_range(tmp_path: Path) -> None:
    origin, _ = queue_in_order(tmp_path / "run.jsonl", 800.0)
    hidden = replace(origin, state=_without_lengths(origin.state))
    assert all(spec.steps is None for spec in _active(hidden.state))
    assert all(spec.steps is not None for spec in _active(origin.state))
    last = start_ranges(hidden).ranges["j7"]
    assert last.low_s is not None
    assert last.high_s is None or last.high_s >= last.low_s


def test_lengths_are_not_guessed(tmp_path: Path) -> None:
    origin, _ = queue_in_order(tmp_path / "run.jsonl")
    assert start_ranges(replace(origin, state=_without_lengths(origin.state))).ranges == {}


def _active(state: State) -> list[JobSpec]:
    return [state.specs[j] for j in state.active_jobs.tolist()]


def test_when_time_is_short_fewer_futures_state_a_smaller_chance(tmp_path: Path) -> None:
    origin, _ = queue_in_order(tmp_path / "run.jsonl")
    assert start_ranges(origin, is_enough=lambda: True).chance == chance_of(4)


def test_the_calibration_counts_every_estimate_once() -> None:
    cluster, profile = parse_short_form("v100:4,k80:4"), load_default_profile()
    workload = from_generator(profile, cluster, 40, Generated(more={"durations": "gavel"}))
    scale = replace(QUICK, jobs=40, moments=2, loads=(2.0,), policies=("fifo",))
    (checked,) = calibrate(cluster, profile, {"generated": workload}, scale)

    assert checked.estimates > 0
    assert checked.held + checked.early + checked.late == checked.estimates
    assert checked.part is not None
    assert 0 <= checked.part <= 1


def test_the_parts_of_a_foreign_trace_are_distinct_and_have_the_load() -> None:
    cluster, profile = parse_short_form("v100:4,k80:4"), load_default_profile()
    whole = from_generator(profile, cluster, 60, Generated())(0.8, 0)
    build = windows(whole, profile, cluster, 20)

    parts = [build(None, seed) for seed in range(4)]
    assert [part.jobs[0].id for part in parts] == [whole.jobs[i].id for i in (0, 20, 40, 0)]
    assert all(part.jobs[0].arrival_s == 0.0 and len(part.jobs) == 20 for part in parts)
    assert build(0.5, 1).jobs[-1].arrival_s > build(1.0, 1).jobs[-1].arrival_s
