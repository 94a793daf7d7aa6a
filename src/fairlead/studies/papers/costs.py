"""Approximate CPU seconds of each part of a study, for estimates of the remaining time. Only the proportions count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.studies.papers.fft import experiment as fft
from fairlead.studies.papers.fft.calibration import LOADS, SHORTEST_S
from fairlead.studies.papers.fft.runs import BASELINES, CONTENDERS
from fairlead.studies.papers.hare import experiment as hare
from fairlead.studies.papers.oef import experiment as oef

BATCH = 5.0  # the factor by which a lower bound takes longer if all jobs of the even cluster arrive at once


def _oef(scale: oef.OefScale) -> list[float]:
    """Costs of static totals, promises, runs in three settings, and runs with a liar."""
    run_s = 0.002 * scale.seeds * scale.jobs
    return [0.006 * scale.mixes, 0.3 * scale.lies, 12 * run_s, 9 * run_s, 5 * run_s, 15 * run_s]


def _hare(scale: hare.HareScale) -> list[float]:
    """Costs of settings, ablation, switching, sweeps and the fit, for one seed."""
    settings = [
        (BATCH if one.load is None and one.jobs >= 100 else 1.0) * 0.02 * one.jobs * scale.intervals / 60
        for one in hare.headlines_of(scale)
    ]
    sweeps = [0.01 * sum(setting.jobs for setting in settings) for settings in hare.sweeps().values()]
    return [*settings, 0.4, 0.4, *([*sweeps, 10.0] if scale.sweeps else [])]


def _fft(scale: fft.FftScale) -> list[float]:
    """Costs of two traces, other beds, calibration, wrong lengths, profiling, one decision, low loads and simulations."""
    run_s = 0.0013 * scale.jobs
    traces = [len(CONTENDERS) * run_s * scale.seeds] * 2
    other_beds = [(2 + len(BASELINES)) * run_s * len(scale.other_bed_seeds)] * len(fft.OTHER_BEDS)
    fit = 0.7 * len(LOADS) * len(SHORTEST_S) * len(BASELINES) * run_s * scale.calibration_seeds
    large_s = 0.0012 * scale.large_jobs
    large = [
        *[0.5 * 3 * run_s] * len(fft.EMPTIER_PARTS),
        large_s * (2 + len(fft.LARGE_RIVALS)) * scale.large_seeds,
        large_s * (2 + len(fft.LARGE_SCATTERED)) * scale.large_seeds,
        large_s * (2 + len(fft.LARGE_CROWDED)),
        *[(2 + len(fft.SIMULATED_RIVALS)) * run_s] * len(fft.SIMULATED_BEDS),
    ]
    return [
        *traces,
        *other_beds,
        fit,
        9 * run_s * scale.seeds,
        4 * run_s * scale.seeds,
        3.0,
        *(large if scale.large_jobs else []),
    ]


COSTS: dict[str, Callable[[Any], list[float]]] = {"oef": _oef, "hare": _hare, "fft": _fft}
