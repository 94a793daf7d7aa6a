"""The study behind `fairlead reproduce hare`, small."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.studies.papers.hare import experiment as study
from fairlead.studies.papers.hare.calibration import TEST_BED
from fairlead.studies.papers.hare.task_workloads import TaskWorkload, draw

DEV_SEEDS = range(50, 53)


def ratio(part: dict[str, Any], of: str, to: str) -> float:
    return study.ratio(part, of, to).mean


def test_the_load_is_the_requested_one() -> None:
    setting = TaskWorkload("", (8, 8, 8, 8), 4000, 0.8)
    case = draw(setting, 1)
    assert case.tasks @ case.known.fluid_s / case.arrival_s[-1] == pytest.approx(0.8, rel=0.05)


def test_a_sweep_states_the_load_of_each_line() -> None:
    lines = study.sweeps()
    for setting, load in zip(
        (*lines["GPUs"], *lines["jobs"]), (1.4, 7 / 6, 1, 7 / 8, 7 / 9, 0.5, 0.75, 1, 1.25, 1.5), strict=True
    ):
        assert setting.offered == pytest.approx(load)
        assert f"load {load:.3g}, " in setting.describe()
        case = draw(replace(setting, jobs=setting.jobs * 10, load_jobs=(setting.load_jobs or setting.jobs) * 10), 1)
        assert case.tasks @ case.known.fluid_s / case.arrival_s[-1] == pytest.approx(load, rel=0.1)


def test_twice_the_jobs_are_the_same_load() -> None:
    (longer,), most = study.sweeps()["jobs, twice as many"], study.sweeps()["jobs"][-1]

    assert (longer.jobs, longer.gpus) == (2 * most.jobs, most.gpus)
    assert longer.offered == most.offered


def test_bursts_keep_the_load() -> None:
    setting = TaskWorkload("", (8, 8, 8, 8), 4000, 0.8, bursty=True)
    case = draw(setting, 1)
    assert case.tasks @ case.known.fluid_s / case.arrival_s[-1] == pytest.approx(0.8, rel=0.2)
    assert len(np.unique(case.arrival_s)) == 500


def test_on_the_test_bed_hare_is_well_ahead_of_one_gpu_per_job() -> None:
    part = study.compare(TaskWorkload("", TEST_BED, 40, 0.7), DEV_SEEDS, intervals=20)
    assert ratio(part, "allox", "hare") >= 1.8
    assert part["sum w C / lower bound"].high <= 1.3


def test_without_lengths_hare_is_well_ahead_of_gangs_that_do_not_see_types() -> None:
    part = study.compare(TaskWorkload("", study.EVEN, 100, 0.9), DEV_SEEDS)
    assert ratio(part, "tiresias, blind", "hlas") >= 2.6


def test_with_one_task_per_round_hare_is_no_worse_than_matching() -> None:
    part = study.compare(TaskWorkload("", study.EVEN, 100, 1.0, {1: 1.0}), DEV_SEEDS)
    assert ratio(part, "allox", "hare") >= 1.0


def test_the_command_prints_the_paper_next_to_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    small = [replace(study.headlines()[0], jobs=8, rounds=(2, 5))]
    monkeypatch.setattr(study, "headlines", lambda: small)
    monkeypatch.setattr(study, "ROOM_GIB", (1.0,))
    table = CliRunner().invoke(app, ["reproduce", "hare", "--quick"])
    assert table.exit_code == 0, table.output
    assert "allox / hare" in table.output
    assert {"1.9", "verdict"} <= set(table.output.split())
    assert "load 0.7" in table.output
    result = CliRunner().invoke(app, ["reproduce", "hare", "--quick", "-o", "json"])
    assert json.loads(result.stdout)["parts"]["headline: test bed"]["jct"]["hare"]
