"""A number over seeds, and the JSON form of nested numbers that contain spreads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """The mean, smallest and largest value over seeds."""

    mean: float
    low: float
    high: float


def spread(values: FloatArray | Sequence[float]) -> SeedSpread:
    return SeedSpread(float(np.mean(values)), float(np.min(values)), float(np.max(values)))


def dump_numbers(numbers: Any) -> str:
    """JSON in which a spread is an object with its three numbers."""
    return json.dumps(numbers, allow_nan=False, default=asdict)


def load_numbers(text: str) -> Any:
    return json.loads(text, object_hook=_spread_or_object)


def _spread_or_object(value: dict[str, Any]) -> Any:
    return SeedSpread(**value) if value.keys() == {"mean", "low", "high"} else value
