"""Small numbers for what jobs have in common, in the order in which they are first seen."""

from __future__ import annotations

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.jobs import JobSpec


class Labels:
    """What jobs have in common by their descriptions is numbered for life; what follows from the cluster, until it changes."""

    def __init__(self) -> None:
        self._models: dict[str, int] = {}
        self._kinds: dict[tuple[str, str, int, tuple[str, ...]], int] = {}
        self._widths: dict[tuple[int, ...], int] = {}
        self.width_sets: list[tuple[int, ...]] = []
        self._alike: dict[tuple[bytes, int, float], int] = {}
        self._mixable: dict[bytes, int] = {}
        self.mixable_rows: list[BoolArray] = []  # t  which types may be mixed, each answer once

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
        """`rates` by type."""
        return self._alike.setdefault((rates.tobytes(), spec.gpus, spec.weight), len(self._alike))

    def mixable(self, mixable: BoolArray) -> int:
        """`mixable` by type."""
        row = self._mixable.setdefault(mixable.tobytes(), len(self.mixable_rows))
        if row == len(self.mixable_rows):
            self.mixable_rows.append(mixable)
        return row

    def forget_cluster(self) -> None:
        self._alike, self._mixable, self.mixable_rows = {}, {}, []
