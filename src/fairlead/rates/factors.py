"""How the rate of a job on a type is known: relative to the table, with a confidence and a source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fairlead.model.arrays import FloatArray
from fairlead.rates.completion import Source, source_of
from fairlead.rates.profile import Layer, Profile, chip_of


class RateSource(StrEnum):
    """Where a rate comes from, the most reliable first."""

    MEASURED = "measured"  # reports of running jobs
    PROFILED = "profiled"  # rows of the profile that were measured, or the formula
    COMPLETED = "completed"  # estimated from other models or types
    ASSUMED = "assumed"  # the word of somebody, or the general speeds of GPU types


@dataclass(frozen=True, slots=True, eq=False)
class RateFactors:
    """What is known about the rates of one job by type, relative to the table's rates."""

    factor: FloatArray  # t  observed rate / the table's rate; 1 where nothing was observed
    confidence: FloatArray  # t  from 0, the table's rate is all that is known, to 1, the factor is certain
    source: tuple[RateSource, ...]  # t


_OF_ROW = {
    Source.MEASURED: RateSource.PROFILED,
    Source.PROFILED: RateSource.PROFILED,
    Source.DECLARED: RateSource.ASSUMED,
    Source.ESTIMATED: RateSource.COMPLETED,
    Source.COMPLETED: RateSource.COMPLETED,
}
_ORDER = list(RateSource)


def source_in(profile: Profile, model: str, gpu: str, gpus: int, nodes: int) -> RateSource:
    """The source of the profile's rate; if it comes from several rows, that of the most reliable of them."""
    known = profile.known(model, gpu, gpus, nodes)
    if known.layer is Layer.NOTHING:
        return RateSource.ASSUMED
    if known.layer is Layer.FORMULA:
        return RateSource.PROFILED
    names = (gpu, chip_of(gpu))
    rows = [row for row in profile.speeds if row.model == model and row.gpu in names]
    exact = [row for row in rows if known.layer is Layer.ROW and (row.gpus, row.nodes) == (gpus, min(nodes, gpus))]
    return min((_OF_ROW[source_of(row)] for row in exact or rows), key=_ORDER.index)
