"""The text format of Prometheus (version 0.0.4): families of metrics with their samples, as one document."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from fairlead.model.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[str, ...]  # values, in the order of the family's labels
Samples = Mapping[Any, float] | Mapping[Any, Histogram]  # by Labels; a mapping is invariant in the type of its keys
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric: its name, its kind (counter, gauge or histogram), what it means and the names of its labels."""

    name: str
    kind: str
    help: str
    labels: Labels = ()
    bounds: tuple[float, ...] = ()  # of a histogram


def render(families: Iterable[tuple[MetricFamily, Samples]]) -> str:
    """The document. A family without samples is left out."""
    lines: list[str] = []
    for family, samples in families:
        if samples:
            lines.append(f"# HELP {family.name} {family.help.translate(_HELP_ESCAPES)}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            for values, sample in samples.items():
                pairs = [
                    f'{label}="{value.translate(_ESCAPES)}"' for label, value in zip(family.labels, values, strict=True)
                ]
                if isinstance(sample, Histogram):
                    lines += _histogram_lines(family.name, pairs, sample)
                else:
                    lines.append(f"{family.name}{_braced(pairs)} {number(sample)}")
    return "".join(f"{line}\n" for line in lines)


def number(value: float) -> str:
    """A number as Prometheus reads it: whole numbers without a fraction, and infinities by name."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _histogram_lines(name: str, pairs: list[str], histogram: Histogram) -> list[str]:
    """Cumulative counts up to each bound and beyond, the sum, and the number of values."""
    bounds = (*map(number, histogram.bounds), "+Inf")
    counts = list(accumulate(histogram.counts))
    labelled = ((_braced([*pairs, f'le="{bound}"']), count) for bound, count in zip(bounds, counts, strict=True))
    return [
        *(f"{name}_bucket{labels} {count}" for labels, count in labelled),
        f"{name}_sum{_braced(pairs)} {number(histogram.total)}",
        f"{name}_count{_braced(pairs)} {counts[-1]}",
    ]


def _braced(pairs: list[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""
