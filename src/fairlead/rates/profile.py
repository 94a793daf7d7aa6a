"""A profile: measured speeds of models on GPU types, and a stated rule for what lies between the measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fairlead.model.errors import InputError

_Curve = tuple[tuple[int, float], ...]  # (GPUs, samples/s), ascending


@dataclass(frozen=True, slots=True)
class Speed:
    """One row: the whole job makes `steps_per_s` on `gpus` GPUs over `nodes` nodes, `batch` samples per GPU and step."""

    model: str
    gpu: str
    gpus: int
    nodes: int
    batch: float
    steps_per_s: float  # 0 = was tried and does not run
    source: str

    def __post_init__(self) -> None:
        where = f"{self.model} on {self.gpus} x {self.gpu}"
        if not (math.isfinite(self.steps_per_s) and 0 <= self.steps_per_s <= 1e9):
            raise InputError(
                f"{where}: steps_per_s is {self.steps_per_s}; wanted a number from 0 (does not run) to 1e9"
            )
        if not (math.isfinite(self.batch) and 0 < self.batch <= 1e9):
            raise InputError(f"{where}: batch is {self.batch}; wanted a number above 0")
        if not 1 <= self.nodes <= self.gpus:
            raise InputError(f"{where}: nodes is {self.nodes}; wanted 1 up to the number of GPUs")
        if not self.source:
            raise InputError(f"{where}: no source; say where the number comes from")

    @property
    def samples_per_s(self) -> float:
        return self.steps_per_s * self.batch * self.gpus


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model needs and costs, whatever the GPU."""

    memory_gib: float = 0.0  # per GPU; 0 = fits anywhere
    restart_s: float = 0.0  # checkpoint, load and warm-up on every move
    spread: float = 1.0  # rate on several nodes / rate on one, where no row says

    def __post_init__(self) -> None:
        for name, low, high in (("memory_gib", 0.0, 1e5), ("restart_s", 0.0, 1e7), ("spread", 1e-6, 1.0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and low <= value <= high):
                raise InputError(f"{name} is {value}; wanted a number from {low:g} to {high:g}")


@dataclass(frozen=True)
class Profile:
    """Speeds with sources. Between measured widths the rate per GPU is interpolated over log(GPUs); beyond them it stays
    that of the nearest width. Several nodes use the rows with the nearest number of nodes above one, else `spread`.
    """

    name: str
    speeds: tuple[Speed, ...]
    facts: Mapping[str, ModelFacts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        curves: dict[tuple[str, str], dict[int, dict[int, float]]] = {}
        for row in self.speeds:
            by_width = curves.setdefault((row.model, row.gpu), {}).setdefault(row.nodes, {})
            if row.gpus in by_width:
                raise InputError(
                    f"{row.model} on {row.gpus} x {row.gpu} over {row.nodes} nodes stands twice; keep one row"
                )
            by_width[row.gpus] = row.samples_per_s
        ready = {
            key: {nodes: tuple(sorted(by_width.items())) for nodes, by_width in by_nodes.items()}
            for key, by_nodes in curves.items()
        }
        object.__setattr__(self, "_curves", ready)
        batch: dict[str, float] = {}
        for row in self.speeds:
            batch.setdefault(row.model, row.batch)
        object.__setattr__(self, "_batch", batch)

    _curves: Mapping[tuple[str, str], Mapping[int, _Curve]] = field(init=False, repr=False, compare=False)
    _batch: Mapping[str, float] = field(init=False, repr=False, compare=False)

    @property
    def models(self) -> tuple[str, ...]:
        """In the order of their first row."""
        return tuple(self._batch)

    def facts_of(self, model: str) -> ModelFacts:
        return self.facts.get(model, _NO_FACTS)

    def samples_per_step(self, model: str, gpus: int) -> float:
        """How many samples one step of the whole job consumes at the reference width."""
        return self._batch[model] * gpus

    def samples_per_s(self, model: str, gpu: str, gpus: int, nodes: int = 1) -> float:
        """Rate of the whole job; 0 where the model was never measured on this GPU or does not run."""
        by_nodes = self._curves.get((model, gpu)) or self._curves.get((model, chip_of(gpu)))
        if not by_nodes:
            return 0.0
        if nodes == 1 or gpus == 1:
            return _on_curve(by_nodes[min(by_nodes)], gpus)
        spread = [n for n in by_nodes if n > 1]
        if spread:
            nearest = min(spread, key=lambda n: (abs(math.log(n / nodes)), n))
            return _on_curve(by_nodes[nearest], gpus)
        return _on_curve(by_nodes[1], gpus) * self.facts_of(model).spread

    def restricted_to(self, models: Iterable[str], gpus: Iterable[str]) -> Profile:
        """The part that a run with these models and GPU types can ask about.

        The first row of a model stays whatever its GPU: its batch says what a step is.
        """
        wanted = set(models)
        types = {name for gpu in gpus for name in (gpu, chip_of(gpu))}
        first = {row.model: row for row in reversed(self.speeds)}
        rows = tuple(
            row for row in self.speeds if row.model in wanted and (row.gpu in types or row is first[row.model])
        )
        return Profile(self.name, rows, {m: f for m, f in self.facts.items() if m in wanted})


_NO_FACTS = ModelFacts()


def chip_of(gpu: str) -> str:
    """The chip of a card named with its memory, `v100` of `v100-32`: it has the same speeds where no row says better."""
    chip, dash, memory = gpu.rpartition("-")
    return chip if dash and memory.removesuffix("gib").isdigit() else gpu


def _on_curve(curve: _Curve, gpus: int) -> float:
    below = above = None
    for width, rate in curve:
        if width == gpus:
            return rate
        if width < gpus:
            below = (width, rate / width)
        elif above is None:
            above = (width, rate / width)
    if below is None or above is None:
        nearest = below or above
        assert nearest is not None, "a curve has at least one point"
        return nearest[1] * gpus
    if min(below[1], above[1]) <= 0:
        return 0.0
    part = math.log(gpus / below[0]) / math.log(above[0] / below[0])
    return float(gpus * below[1] ** (1 - part) * above[1] ** part)
