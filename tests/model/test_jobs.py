"""The checks on a job's description."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec

GOOD: dict[str, Any] = {"id": "7", "tenant": "t", "model": "m", "arrival_s": 0.0, "gpus": 2, "steps": 10.0}
NAN, INF = float("nan"), float("inf")


def test_a_rigid_job_runs_on_its_reference_width_only() -> None:
    assert JobSpec(**GOOD).widths == (2,)


def test_a_job_of_unknown_length_is_allowed() -> None:
    assert JobSpec(**{**GOOD, "steps": None}).steps is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("arrival_s", value) for value in (NAN, INF, -1.0, 1e13)),
        *(("steps", value) for value in (NAN, INF, 0.0, -5.0, 1e19)),
        *(("weight", value) for value in (NAN, INF, 0.0, -1.0, 1e10)),
        *(("gpus", value) for value in (0, -1, 100_001)),
    ],
)
def test_a_bad_number_is_named_with_its_job(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"job 7: {name} is {value}".replace("+", r"\+")):
        JobSpec(**{**GOOD, name: value})


@pytest.mark.parametrize("name", ["id", "tenant", "model"])
def test_an_empty_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is empty"):
        JobSpec(**{**GOOD, name: ""})


@pytest.mark.parametrize("widths", [(1, 4), (2, 1), (2, 2), (2, 0)])
def test_widths_ascend_and_hold_the_reference(widths: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        JobSpec(**GOOD, widths=widths)


def test_the_largest_and_smallest_values_that_make_sense_are_allowed() -> None:
    JobSpec(**{**GOOD, "steps": 1e18, "arrival_s": 1e12, "weight": 1e9, "gpus": 100_000})
    JobSpec(**{**GOOD, "steps": 1e-9, "weight": 1e-9, "gpus": 1})
