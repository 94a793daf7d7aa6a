"""A profile: measured speeds of models on GPU types, and explicit rules for what was not measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fairlead.model.errors import InputError
from fairlead.rates.iteration import Links, Parts, formula_samples_per_s

DOUBTFUL = 2.0
_Curve = tuple[tuple[int, float], ...]  # (GPUs, samples/s), ascending


@dataclass(frozen=True, slots=True)
class Speed:
    """One row: the whole job makes `steps_per_s` on `gpus` GPUs over `nodes` nodes, `batch` samples per GPU and step."""

    model: str
    gpu: str
    gpus: int
    nodes: int
    batch: float
    steps_per_s: float  # 0: it was tried and does not run
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
            raise InputError(f"{where}: no source; state where the number comes from")

    @property
    def samples_per_s(self) -> float:
        return self.steps_per_s * self.batch * self.gpus


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model needs and costs on any GPU."""

    memory_gib: float = 0.0  # per GPU; 0: fits anywhere
    restart_s: float = 0.0  # checkpoint, load and warm-up on every move
    spread: float = 1.0  # rate on several nodes / rate on one, where there is no row

    def __post_init__(self) -> None:
        for name, low, high in (("memory_gib", 0.0, 1e5), ("restart_s", 0.0, 1e7), ("spread", 1e-6, 1.0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and low <= value <= high):
                raise InputError(f"{name} is {value}; wanted a number from {low:g} to {high:g}")


class Layer(StrEnum):
    """The rule by which a profile knows a rate."""

    ROW = "row"  # there is a row for it
    FORMULA = "formula"  # iteration time from profiled parts
    BETWEEN = "between widths"  # rate per GPU interpolated over log(GPUs)
    NEAREST = "nearest width"  # the rate per GPU of the nearest width or number of nodes
    SPREAD = "spread"  # one node's rate times the model's spread
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class KnownRate:
    """A rate of the whole job, and how it is known."""

    samples_per_s: float
    layer: Layer
    source: str  # of the row or the parts; empty if the rate comes from several rows


@dataclass(frozen=True)
class Profile:
    """Speeds with their sources.

    A rate comes from the first of these that is available: a row; the iteration-time formula, if the model's `parts` on
    this GPU and the GPU's `links` are known; other rows. Between measured widths the rate per GPU is interpolated over
    log(GPUs), beyond them it is that of the nearest width. Several nodes use the rows with the nearest number of nodes
    above one, or else `spread`.
    """

    name: str
    speeds: tuple[Speed, ...]
    facts: Mapping[str, ModelFacts] = field(default_factory=dict)
    parts: Mapping[tuple[str, str], Parts] = field(default_factory=dict)  # (model, GPU)
    links: Mapping[str, Links] = field(default_factory=dict)  # GPU

    _curves: Mapping[tuple[str, str], Mapping[int, _Curve]] = field(init=False, repr=False, compare=False)
    _rows: Mapping[tuple[str, str, int, int], Speed] = field(init=False, repr=False, compare=False)
    _batch: Mapping[str, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows: dict[tuple[str, str, int, int], Speed] = {}
        curves: dict[tuple[str, str], dict[int, dict[int, float]]] = {}
        for row in self.speeds:
            if (row.model, row.gpu, row.gpus, row.nodes) in rows:
                raise InputError(f"{row.model} on {row.gpus} x {row.gpu} over {row.nodes} nodes has two rows; keep one")
            rows[row.model, row.gpu, row.gpus, row.nodes] = row
            curves.setdefault((row.model, row.gpu), {}).setdefault(row.nodes, {})[row.gpus] = row.samples_per_s
        ready = {
            key: {nodes: tuple(sorted(by_width.items())) for nodes, by_width in by_nodes.items()}
            for key, by_nodes in curves.items()
        }
        batch: dict[str, float] = {}
        for row in self.speeds:
            batch.setdefault(row.model, row.batch)
        for (model, gpu), parts in self.parts.items():
            if self.links_of(gpu) is None:
                raise InputError(f"{model} has parts on {gpu}, but there are no links of {gpu}; add them to links")
            batch.setdefault(model, parts.batch)
        for name, value in (("_curves", ready), ("_rows", rows), ("_batch", batch)):
            object.__setattr__(self, name, value)

    @property
    def models(self) -> tuple[str, ...]:
        """Models in the order of their first row, then of their parts."""
        return tuple(self._batch)

    @property
    def gpus(self) -> tuple[str, ...]:
        """GPU types with a row or parts, in order."""
        return tuple(dict.fromkeys((*(row.gpu for row in self.speeds), *(gpu for _, gpu in self.parts))))

    def gpus_of(self, model: str) -> tuple[str, ...]:
        return tuple(gpu for gpu in self.gpus if (model, gpu) in self._curves or (model, gpu) in self.parts)

    def facts_of(self, model: str) -> ModelFacts:
        return self.facts.get(model, _NO_FACTS)

    def samples_per_step(self, model: str, gpus: int) -> float:
        """Samples that one step of the whole job consumes at the reference width."""
        return self._batch[model] * gpus

    def links_of(self, gpu: str) -> Links | None:
        """The links of a GPU; a card named with its memory has the links of its chip."""
        return self.links.get(gpu) or self.links.get(chip_of(gpu))

    def samples_per_s(self, model: str, gpu: str, gpus: int, nodes: int = 1) -> float:
        """Rate of the whole job; 0 where the model was never measured on this GPU or does not run."""
        return self.known(model, gpu, gpus, nodes).samples_per_s

    def known(self, model: str, gpu: str, gpus: int, nodes: int = 1) -> KnownRate:
        nodes = min(nodes, gpus)
        for name in (gpu, chip_of(gpu)):
            by_nodes, parts = self._curves.get((model, name)), self.parts.get((model, name))
            if by_nodes or parts:
                break
        else:
            return _NOTHING
        if (row := self._rows.get((model, name, gpus, nodes))) is not None:
            return KnownRate(row.samples_per_s, Layer.ROW, row.source)
        if parts is not None:
            links = self.links_of(name)
            assert links is not None, "checked in __post_init__"
            source = f"{parts.source}; links: {links.source}"
            return KnownRate(formula_samples_per_s(parts, links, gpus, nodes), Layer.FORMULA, source)
        assert by_nodes, "without parts there are rows"
        return _from_other_rows(by_nodes, gpus, nodes, self.facts_of(model).spread)

    def doubts(self, model: str | None = None) -> tuple[str, ...]:
        """Rows that differ from the formula by more than a factor of `DOUBTFUL`: one of the two is wrong."""
        doubts = []
        for row in self.speeds:
            parts, links = self.parts.get((row.model, row.gpu)), self.links_of(row.gpu)
            if parts is None or links is None or row.samples_per_s == 0 or model not in (None, row.model):
                continue
            computed = formula_samples_per_s(parts, links, row.gpus, row.nodes)
            factor = max(computed / row.samples_per_s, row.samples_per_s / computed)
            if factor > DOUBTFUL:
                doubts.append(
                    f"{row.model} on {row.gpus} x {row.gpu}: the row has {row.samples_per_s:.4g} samples/s, the formula "
                    f"gives {computed:.4g} from the parts, a factor of {factor:.3g}; parts are in seconds of one iteration"
                )
        return tuple(doubts)

    def restricted_to(self, models: Iterable[str], gpus: Iterable[str]) -> Profile:
        """The part of the profile that a run with these models and GPU types can use.

        The first row, or parts, of a model stay even on other GPUs, because their batch defines a step.
        """
        kept_models = set(models)
        types = {name for gpu in gpus for name in (gpu, chip_of(gpu))}
        first = {row.model: row for row in reversed(self.speeds)}
        first_parts = {model: (model, gpu) for model, gpu in reversed(list(self.parts)) if model not in first}
        rows = tuple(
            row for row in self.speeds if row.model in kept_models and (row.gpu in types or row is first[row.model])
        )
        parts = {
            (model, gpu): value
            for (model, gpu), value in self.parts.items()
            if model in kept_models and (gpu in types or first_parts.get(model) == (model, gpu))
        }
        linked = {name for _, gpu in parts for name in (gpu, chip_of(gpu))}
        return replace(
            self,
            speeds=rows,
            facts={m: f for m, f in self.facts.items() if m in kept_models},
            parts=parts,
            links={gpu: value for gpu, value in self.links.items() if gpu in linked},
        )


_NO_FACTS = ModelFacts()
_NOTHING = KnownRate(0.0, Layer.NOTHING, "")


def chip_of(gpu: str) -> str:
    """The chip of a card named with its memory, `v100` of `v100-32`: its speeds apply where the card has no row."""
    chip, dash, memory = gpu.rpartition("-")
    return chip if dash and memory.removesuffix("gib").isdigit() else gpu


def _from_other_rows(by_nodes: Mapping[int, _Curve], gpus: int, nodes: int, spread: float) -> KnownRate:
    if nodes == 1:
        return _on_curve(by_nodes[min(by_nodes)], gpus)
    several = [n for n in by_nodes if n > 1]
    if several:
        nearest = min(several, key=lambda n: (abs(math.log(n / nodes)), n))
        return _on_curve(by_nodes[nearest], gpus)
    alone = _on_curve(by_nodes[1], gpus)
    return KnownRate(alone.samples_per_s * spread, Layer.SPREAD, "")


def _on_curve(curve: _Curve, gpus: int) -> KnownRate:
    below = above = None
    for width, rate in curve:
        if width == gpus:
            return KnownRate(rate, Layer.NEAREST, "")
        if width < gpus:
            below = (width, rate / width)
        elif above is None:
            above = (width, rate / width)
    if below is None or above is None:
        nearest = below or above
        assert nearest is not None, "a curve has at least one point"
        return KnownRate(nearest[1] * gpus, Layer.NEAREST, "")
    if min(below[1], above[1]) <= 0:
        return KnownRate(0.0, Layer.BETWEEN, "")
    part = math.log(gpus / below[0]) / math.log(above[0] / below[0])
    return KnownRate(float(gpus * below[1] ** (1 - part) * above[1] ** part), Layer.BETWEEN, "")
