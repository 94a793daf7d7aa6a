"""Start estimates learn from their own past: the conformal correction, and what is kept of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fairlead.numerics.random import stream
from fairlead.studies.what_if.estimates import CHANCE, HORIZON_S, StartRange
from fairlead.studies.what_if.learning import (
    FEWEST_SCORES,
    MOST_SCORES,
    Experience,
    PendingEstimate,
    experience_from_json,
    experience_to_json,
    holds,
    score_of,
    widened,
    widening_of,
)


def test_ranges_that_are_too_narrow_are_widened_until_they_hold_as_often_as_stated() -> None:
    """The model is too sure of itself by a factor of three: its 80 % range is a third as wide, in logarithms."""
    draws = stream(0, "starts")
    scores, held, before = list[float](), list[bool](), list[bool]()
    for _ in range(2000):
        middle = float(np.exp(draws.uniform(6, 9)))
        own = StartRange(middle * math.exp(-0.4), middle * math.exp(0.4))
        start_s = middle * math.exp(float(draws.normal(0.0, 1.0)))
        before.append(holds(own, start_s))
        held.append(holds(widened(own, widening_of(scores[-MOST_SCORES:])), start_s))
        scores.append(score_of(own, start_s))
    assert np.mean(before) < 0.4
    assert np.mean(held[100:]) == pytest.approx(CHANCE, abs=0.03)


def test_ranges_that_are_too_wide_are_narrowed() -> None:
    q = widening_of([-0.5] * 50)
    one = widened(StartRange(600.0, 6000.0), q)
    assert q == -0.5
    assert one.low_s is not None
    assert one.high_s is not None
    assert 600.0 < one.low_s < one.high_s < 6000.0
    middle = widened(StartRange(600.0, 660.0), q)
    assert middle.low_s == pytest.approx(middle.high_s)


def test_a_score_is_the_factor_by_which_a_range_must_grow() -> None:
    one = StartRange(240.0, 540.0)
    assert score_of(one, 1140.0) == pytest.approx(math.log(2.0))
    assert score_of(one, 90.0) == pytest.approx(math.log(2.0))
    for start_s in (0.0, 90.0, 300.0, 1140.0, 9000.0):
        assert holds(widened(one, score_of(one, start_s) + 1e-9), start_s) or score_of(one, start_s) < 0
    assert score_of(StartRange(300.0, None), 9000.0) < 0
    assert score_of(StartRange(None, None), 600.0) == pytest.approx(math.log((HORIZON_S + 60) / 660))


def test_few_comparisons_change_nothing_and_one_cannot_ruin_all() -> None:
    assert widening_of([5.0] * (FEWEST_SCORES - 1)) == 0.0
    assert widening_of([0.1] * 99 + [50.0]) == 0.1
    assert widened(StartRange(None, None), 1.0) == StartRange(None, None)
    assert widened(StartRange(60.0, HORIZON_S), 1.0).high_s is None


def test_the_first_estimate_of_a_job_is_checked_once_when_it_starts() -> None:
    narrow, wide = StartRange(100.0, 200.0), StartRange(50.0, 400.0)
    first = Experience().with_pending(
        {"a": PendingEstimate(1000.0, narrow, wide), "b": PendingEstimate(1000.0, narrow, narrow)}
    )
    later = first.with_pending({job: PendingEstimate(1100.0, wide, wide) for job in ("a", "b", "c")})
    assert later.pending["a"].time_s == 1000.0
    assert later.pending["c"].time_s == 1100.0

    checked = later.after({"a": 1300.0, "b": 1301.0, "zz": 5.0})
    assert [one.held for one in checked.checked] == [True, False]
    assert [one.score for one in checked.checked] == pytest.approx([math.log(360 / 260), math.log(361 / 260)])
    assert set(checked.pending) == {"c"}
    assert checked.held_since(1301.0) == (0, 1)
    assert checked.after({"a": 1300.0}).checked == checked.checked
    assert checked.with_pending({}).pending == {}  # c was cancelled
    assert experience_from_json(json.loads(json.dumps(experience_to_json(later)))) == later


def test_what_is_kept_is_bounded() -> None:
    some = StartRange(1.0, 2.0)
    experience = Experience()
    for i in range(MOST_SCORES + 30):
        experience = experience.with_pending({f"j{i}": PendingEstimate(float(i), some, some)}).after({f"j{i}": i + 1.5})
    assert len(experience.checked) == MOST_SCORES
    assert experience.checked[-1].time_s == MOST_SCORES + 30.5
