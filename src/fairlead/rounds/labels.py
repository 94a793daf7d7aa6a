"""Small numbers for properties that jobs share, in the order in which they first occur."""

from __future__ import annotations

from typing import NamedTuple

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.jobs import JobSpec


class TypesOfKind(NamedTuple):
    """What a job's description says about the types that it can use on the current cluster."""

    rates: FloatArray  # t  samples/s at the reference width, 0 where it may not or cannot run
    mixable: int  # row of `mixable_rows`
    runs_somewhere: bool


class Labels:
    """Numbers from jobs' descriptions are permanent; numbers that depend on the cluster are valid until it changes."""

    def __init__(self) -> None:
        self._models: dict[str, int] = {}
        self._kinds: dict[tuple[str, str, int, tuple[str, ...]], int] = {}
        self._widths: dict[tuple[int, ...], int] = {}
        self.width_sets: list[tuple[int, ...]] = []
        self.types_of_kind: dict[tuple[str, int, tuple[str, ...], bool], TypesOfKind] = {}  # until the cluster changes
        self._alike: dict[tuple[bytes, int, float], int] = {}
        self._mixable: dict[bytes, int] = {}
        self.mixable_rows: list[BoolArray] = []  # t  types that may be mixed, each distinct row once

    def model(self, spec: JobSpec) -> int:
        return self._models.setdefault(spec.model, len(self._models))

    def kind(self, spec: JobSpec) -> int:
        return self._kinds.setdefault((spec.tenant, spec.model, spec.gpus, spec.types), len(self._kinds))

    def width_set(self, spec: JobSpec) -> int:
        number = self._widths.setdefault(spec.widths, len(self.width_sets))
        if number == len(self.width_sets):
            self.width_sets.append(spec.widths)
        return number

    def alike(self, spec: JobSpec, rates: FloatArray) -> int:
        """The number of jobs with these `rates` (t), this width and this weight."""
        return self._alike.setdefault((rates.tobytes(), spec.gpus, spec.weight), len(self._alike))

    def mixable(self, mixable: BoolArray) -> int:
        """The number of this `mixable` row (t)."""
        row = self._mixable.setdefault(mixable.tobytes(), len(self.mixable_rows))
        if row == len(self.mixable_rows):
            self.mixable_rows.append(mixable)
        return row

    def forget_cluster(self) -> None:
        self.types_of_kind, self._alike, self._mixable, self.mixable_rows = {}, {}, {}, []
