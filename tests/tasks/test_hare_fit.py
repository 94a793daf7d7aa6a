"""The fit of Hare's test bed: what enters it, and which setting it prefers."""

from __future__ import annotations

import pytest

from fairlead.studies.papers.hare import calibration
from fairlead.studies.papers.hare.calibration import FIGURES, HOMO_FORMS, SRTF_FORMS, baselines, calibrate, figures


def test_no_figure_of_hare_enters_the_fit() -> None:
    assert not any("hare" in name or "hlas" in name for name in (*baselines(), *FIGURES))


def test_every_form_of_a_baseline_is_tried() -> None:
    assert {*HOMO_FORMS, *SRTF_FORMS} < set(baselines())


def test_figures_are_relative_to_allox_seed_by_seed() -> None:
    jct = {"allox": [1.0, 2.0], "homo": [2.0, 2.0], "srtf": [3.0, 4.0], "fifo gang, fastest": [4.0, 8.0]}

    ours = figures(jct, {"homo": [0.5, 0.7]}, "homo", "srtf")

    assert ours == pytest.approx({"homo / allox": 1.5, "srtf / allox": 2.5, "fifo / allox": 4.0, "homo done": 0.6})


def test_the_closest_setting_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "LOADS", (0.1, 1.0))
    monkeypatch.setattr(calibration, "SCALES", {"up to 8, evenly": calibration.FITTED_SCALES})
    monkeypatch.setattr(calibration, "FIT_SEEDS", range(1))

    fits = calibrate()["fits"]

    assert [fit["load"] for fit in fits] == [1.0, 0.1]
    assert fits[0]["error"] < fits[1]["error"]
