"""The settings of OEF's paper, and the check of its promise among divisions without envy."""

from __future__ import annotations

import numpy as np
import pytest

from fairlead.studies.fairness.instances import DIVISIONS
from fairlead.studies.papers.oef import experiment as study

# Section 4.5 of the notes on the paper: a division without envy that is not Pareto efficient among all divisions.
W = np.array([(1.0, 3.0, 5.0), (1.0, 3.0, 4.5), (1.0, 1.5, 1.5)])
M = np.array([2.0, 3.0, 1.0])


def test_cooperative_shares_cannot_be_improved_without_envy() -> None:
    shares = DIVISIONS["oef-coop"](W, M, np.ones(3)).shares

    assert study.gap_without_envy(W, shares, M) == pytest.approx(0.0, abs=1e-6)


def test_equal_shares_can_be_improved_without_envy_up_to_the_cooperative_ones() -> None:
    equal = np.tile(M / 3, (3, 1))
    coop = DIVISIONS["oef-coop"](W, M, np.ones(3)).shares

    gap = study.gap_without_envy(W, equal, M)

    assert gap == pytest.approx((W * coop).sum() / (W * equal).sum() - 1.0, rel=1e-6)
    assert gap > 0.01


def test_wide_jobs_are_wider_and_only_the_slow_network_loses_more() -> None:
    of = {name: study.workload(3, 200, setting) for name, setting in study.SETTINGS.items()}
    gpus = {name: np.mean([job.gpus for job in trace.jobs]) for name, (trace, _) in of.items()}
    kept = {name: {facts.spread for facts in profile.facts.values()} for name, (_, profile) in of.items()}

    assert gpus["narrow"] < 2.0 < gpus["wide"] == gpus["slow"]
    assert kept == {"narrow": {0.85}, "wide": {0.85}, "slow": {0.6}}


def test_evaluation_seeds_were_not_used_before() -> None:
    """Seeds 0-59 were used by earlier pages, 100-102 for comparing settings."""
    assert set(study.FULL.run_seeds).isdisjoint(range(1000))
    assert set(study.FULL.mix_seeds).isdisjoint(range(1000))
