"""Small numbers for properties that jobs share, in the order in which they first occur."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple

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
        self._kinds: dict[tuple[str, str, int, tuple[str, ...], int], int] = {}
        self._next_model = self._next_kind = 0  # numbers of labels that were forgotten are not used again
        self._widths: dict[tuple[int, ...], int] = {}
        self.width_sets: list[tuple[int, ...]] = []
        # Until the cluster changes:
        self.types_of_kind: dict[tuple[str, int, tuple[str, ...], bool, int | None], TypesOfKind] = {}
        self._alike: dict[tuple[bytes, int, float], int] = {}
        self._mixable: dict[bytes, int] = {}
        self.mixable_rows: list[BoolArray] = []  # t  types that may be mixed, each distinct row once

    def model(self, spec: JobSpec) -> int:
        number = self._models.setdefault(spec.model, self._next_model)
        self._next_model = max(self._next_model, number + 1)
        return number

    def kind(self, spec: JobSpec) -> int:
        kind = (spec.tenant, spec.model, spec.gpus, spec.types, spec.nodes or 0)
        number = self._kinds.setdefault(kind, self._next_kind)
        self._next_kind = max(self._next_kind, number + 1)
        return number

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

    def model_names(self) -> dict[int, str]:
        return {number: name for name, number in self._models.items()}

    def keep_only(self, models: Set[int], kinds: Set[int]) -> None:
        """Forget the models and kinds that nothing refers to any more."""
        self._models = {name: number for name, number in self._models.items() if number in models}
        self._kinds = {kind: number for kind, number in self._kinds.items() if number in kinds}

    def to_json(self) -> dict[str, Any]:
        return {
            "models": list(self._models.items()),
            "kinds": [[*kind[:4], number, *kind[4:]] for kind, number in self._kinds.items()],
            "widths": self.width_sets,
            "next": [self._next_model, self._next_kind],
        }

    def restore(self, facts: dict[str, Any]) -> None:
        self._models = dict(facts["models"])
        self._kinds = {
            (tenant, model, gpus, tuple(types), nodes[0] if nodes else 0): kind
            for tenant, model, gpus, types, kind, *nodes in facts["kinds"]
        }
        self.width_sets = [tuple(widths) for widths in facts["widths"]]
        self._widths = {widths: number for number, widths in enumerate(self.width_sets)}
        self._next_model, self._next_kind = facts["next"]

    def forget_cluster(self) -> None:
        self.types_of_kind, self._alike, self._mixable, self.mixable_rows = {}, {}, {}, []
