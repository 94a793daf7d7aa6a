"""Speeds that were not measured, estimated from those that were: low rank in log space, with an interval.

Rates per GPU, r, of model m in column c = (GPU type g, width w = GPUs and nodes) follow

    log r_mc = mu_m + b_c + u_m . v_c        b_c = b_g + b_w + b'_c,   v_c = v_g + v_w + v'_c

mu_m is the weight of a model and u_m (`RANK` numbers) are its affinities; b and v are the same for columns. Columns of the
same type, or of the same width, share a part of both, so a few cells are enough. All parameters except mu_m are kept small
(ridge); the squared error is minimised block by block. Rows whose source is an estimate are used only for columns
without a measurement.

The interval is conformal: cells are held out and predicted from the rest, and the quantile of the errors is the
half-width in log space. There are three kinds of cells, each with its own quantile: the model was measured on this type
at another width; on other types only; or in no more than `FEW` cells, for which all but two cells of a model are held
out. The only assumption about the errors is that future cells are like the held-out cells of their kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.errors import InputError
from fairlead.numerics.random import stream
from fairlead.rates.profile import Profile, Speed

RANK = 4
FEW = 3
SWEEPS = 40
FOLDS, COLD_FOLDS = 16, 8  # many, because intervals become too wide unless each fold is small
# Ridge penalties, chosen together with `RANK` by the error on held-out cells of Gavel's table and of the default profile:
# intercept and factors of types and widths; of single columns; u_m; mu_m.
SHARED, OWN_INTERCEPT, OWN_FACTORS, LIKING, WEIGHT = (0.02, 0.1), 0.5, 0.3, 1.0, 1e-4

Column = tuple[str, int, int]  # GPU type, GPUs, nodes


class Source(StrEnum):
    """How a rate is known. In a profile, the source of a row starts with this word unless the rate was measured."""

    MEASURED = "measured"
    PROFILED = "profiled"
    DECLARED = "declared"
    ESTIMATED = "estimate"
    COMPLETED = "completed"


_WORDS = {word.value: word for word in Source}


@dataclass(frozen=True, slots=True)
class Estimate:
    """Samples per second of the whole job, and the interval that contains the truth with the requested coverage."""

    samples_per_s: float
    low: float
    high: float
    source: Source


@dataclass(frozen=True, slots=True)
class Completion:
    """A rate for every model in every column, with the half-width of its interval in log space (0 where it is known)."""

    models: tuple[str, ...]  # m
    columns: tuple[Column, ...]  # c
    log_rate: FloatArray  # m,c  log(samples/s per GPU)
    half_width: FloatArray  # m,c
    source: tuple[tuple[Source, ...], ...]  # m,c
    coverage: float

    def estimate(self, model: str, gpu: str, gpus: int = 1, nodes: int = 1) -> Estimate:
        m, c = self.models.index(model), self.columns.index((gpu, gpus, nodes))
        rate, factor = gpus * math.exp(self.log_rate[m, c]), math.exp(self.half_width[m, c])
        return Estimate(rate, rate / factor, rate * factor, self.source[m][c])


def source_of(row: Speed) -> Source:
    """The source of a row: `completed: ...` is completed, `estimate: ...` is an estimate, a citation is a measurement."""
    return _WORDS.get(row.source.partition(":")[0], Source.MEASURED)


def complete(profile: Profile, *, coverage: float = 0.8, seed: int = 0) -> Completion:
    """Estimates for every cell (model, column) of the profile; the columns are all its (type, GPUs, nodes)."""
    if not 0 < coverage < 1:
        raise InputError(f"coverage is {coverage}; wanted a number between 0 and 1, such as 0.8")
    cells = _cells(profile)
    taught = cells.taught()
    rng = stream(seed, "completion")
    log_rate = _fit(cells, taught, rng)  # m,c
    half_width = _half_widths(cells, taught, coverage, rng)  # m,c
    source = [[Source.COMPLETED] * len(cells.columns) for _ in cells.models]
    for i, j, y, word in zip(cells.model.tolist(), cells.column.tolist(), cells.y.tolist(), cells.source, strict=True):
        log_rate[i, j], half_width[i, j], source[i][j] = y, 0.0, word
    return Completion(cells.models, cells.columns, log_rate, half_width, tuple(map(tuple, source)), coverage)


def completed_profile(profile: Profile, completion: Completion) -> Profile:
    """The profile with a row for every cell that it lacks.

    Rows for models that were tried and do not run stay, and cells that the formula covers get no row.
    """
    there = {(row.model, row.gpu, row.gpus, row.nodes) for row in profile.speeds}
    per_gpu = {model: profile.samples_per_step(model, 1) for model in profile.models}
    added: list[Speed] = []
    for m, model in enumerate(completion.models):
        for c, (gpu, gpus, nodes) in enumerate(completion.columns):
            if (model, gpu, gpus, nodes) in there or (model, gpu) in profile.parts:
                continue
            factor = math.exp(completion.half_width[m, c])
            source = f"{Source.COMPLETED}: {completion.coverage:.0%} within a factor of {factor:.3g}"
            steps_per_s = math.exp(completion.log_rate[m, c]) / per_gpu[model]
            added.append(Speed(model, gpu, gpus, nodes, per_gpu[model], steps_per_s, source))
    return replace(profile, speeds=(*profile.speeds, *added))


@dataclass(frozen=True, slots=True)
class _Cells:
    """The known cells as arrays (k), and the models and columns to which they belong."""

    models: tuple[str, ...]
    columns: tuple[Column, ...]
    model: IntArray  # k
    column: IntArray  # k
    y: FloatArray  # k  log(samples/s per GPU)
    source: tuple[Source, ...]  # k
    type_of: IntArray  # c
    width_of: IntArray  # c

    def measured(self) -> BoolArray:
        """k  cells that are more than an estimate."""
        return np.array([word is not Source.ESTIMATED for word in self.source])

    def taught(self) -> BoolArray:
        """k  cells to learn from: measured, or an estimate in a column without a measurement."""
        measured = self.measured()
        has_measurement = np.zeros(len(self.columns), dtype=bool)  # c
        has_measurement[self.column[measured]] = True
        return measured | ~has_measurement[self.column]


def _cells(profile: Profile) -> _Cells:
    rows = [row for row in profile.speeds if row.steps_per_s > 0 and source_of(row) is not Source.COMPLETED]
    if not rows:
        raise InputError(
            f'profile "{profile.name}" holds no speed above 0, so there is nothing to estimate from; add a measured row'
        )
    models = tuple(dict.fromkeys(row.model for row in rows))
    columns = tuple(dict.fromkeys((row.gpu, row.gpus, row.nodes) for row in rows))
    return _Cells(
        models=models,
        columns=columns,
        model=_positions([row.model for row in rows]),
        column=_positions([(row.gpu, row.gpus, row.nodes) for row in rows]),
        y=np.log([row.samples_per_s / row.gpus for row in rows]),
        source=tuple(source_of(row) for row in rows),
        type_of=_positions([gpu for gpu, _, _ in columns]),
        width_of=_positions([width for _, *width in columns]),
    )


def _positions(labels: Sequence[object]) -> IntArray:
    """The position of each label among the distinct labels, in order of first appearance."""
    position: dict[str, int] = {}
    return np.array([position.setdefault(repr(label), len(position)) for label in labels], dtype=np.int64)


def _fit(cells: _Cells, use: BoolArray, rng: np.random.Generator) -> FloatArray:
    """m,c  the model of the module's docstring, from the cells in `use`."""
    model, column, y = cells.model[use], cells.column[use], cells.y[use]  # k
    by_model = _group(model, len(cells.models))
    liking = rng.standard_normal(
        (len(cells.models), RANK)
    )  # m,r  u; it starts at random because zeros would stay zeros
    weight = by_model.sums(y[:, None])[:, 0] / np.maximum(by_model.sums(np.ones((len(y), 1)))[:, 0], 1.0)  # m  mu
    blocks = [
        (_group(cells.type_of[column], int(cells.type_of.max()) + 1), SHARED),
        (_group(cells.width_of[column], int(cells.width_of.max()) + 1), SHARED),
        (_group(column, len(cells.columns)), (OWN_INTERCEPT, OWN_FACTORS)),
    ]
    parts = [
        np.zeros((group.count, 1 + RANK)) for group, _ in blocks
    ]  # intercept and factors of types, widths, columns
    at = np.zeros((len(y), 1 + RANK))  # k  the three parts together
    ones = np.ones(len(y))
    for _ in range(SWEEPS):
        x = np.column_stack([ones, liking[model]])  # k,1+r
        for p, (group, penalty) in enumerate(blocks):
            at -= parts[p][group.of]
            parts[p] = _grouped_ridge(group, x, y - weight[model] - (x * at).sum(axis=1), penalty)
            at += parts[p][group.of]
        own = _grouped_ridge(by_model, np.column_stack([ones, at[:, 1:]]), y - at[:, 0], (WEIGHT, LIKING))
        weight, liking = own[:, 0], own[:, 1:]
    by_column = parts[0][cells.type_of] + parts[1][cells.width_of] + parts[2]  # c,1+r
    return np.asarray(weight[:, None] + by_column[:, 0] + liking @ by_column[:, 1:].T)


@dataclass(frozen=True, slots=True)
class _Group:
    """The group of each cell, sorted once so that sums by group need no matrix product."""

    of: IntArray  # k
    count: int
    order: IntArray  # k
    starts: IntArray  # of each group that has cells, in `order`
    present: IntArray

    def sums(self, values: FloatArray) -> FloatArray:
        out = np.zeros((self.count, values.shape[1]))
        if len(self.starts):
            out[self.present] = np.add.reduceat(values[self.order], self.starts, axis=0)
        return out


def _group(of: IntArray, count: int) -> _Group:
    order = np.argsort(of, kind="stable")
    present, starts = np.unique(of[order], return_index=True)
    return _Group(of, count, order, starts, present)


def _grouped_ridge(group: _Group, x: FloatArray, y: FloatArray, penalty: tuple[float, float]) -> FloatArray:
    """g,f  least squares of y on x, separately in each group; the first feature has a penalty of its own."""
    features = x.shape[1]
    gram = group.sums((x[:, :, None] * x[:, None, :]).reshape(len(y), features**2)).reshape(-1, features, features)
    gram += np.diag([penalty[0]] + [penalty[1]] * (features - 1))
    return np.asarray(np.linalg.solve(gram, group.sums(x * y[:, None])[:, :, None])[:, :, 0])


def _half_widths(cells: _Cells, taught: BoolArray, coverage: float, rng: np.random.Generator) -> FloatArray:
    """m,c  the half-width for each kind of cell, from the errors on held-out measured cells."""
    warm, kinds = _warm_errors(cells, taught, rng)
    few = _cold_errors(cells, taught, rng)
    every = np.concatenate([warm, few])
    known = _counts(cells, taught)  # m,c
    same_type = np.stack(
        [known[:, cells.type_of == t].sum(axis=1) for t in range(int(cells.type_of.max()) + 1)], axis=1
    )
    on_type = same_type[:, cells.type_of] - known > 0  # m,c  at another width
    rare = known.sum(axis=1, keepdims=True) <= FEW  # m,1
    same, other = (_quantile(warm[kinds == kind], every, coverage) for kind in (True, False))  # type
    return np.where(rare, max(_quantile(few, every, coverage), other), np.where(on_type, same, other))


def _warm_errors(cells: _Cells, taught: BoolArray, rng: np.random.Generator) -> tuple[FloatArray, BoolArray]:
    """|error| of measured cells held out fold by fold, and whether the rest still had the model on that type."""
    measured = np.flatnonzero(taught & cells.measured())
    errors, on_type = [], []
    for fold in np.array_split(rng.permutation(measured), max(1, min(FOLDS, len(measured)))):
        use = taught.copy()
        use[fold] = False
        predicted = _fit(cells, use, rng)
        pairs = {
            (m, t) for m, t in zip(cells.model[use].tolist(), cells.type_of[cells.column[use]].tolist(), strict=True)
        }
        rows = set(cells.model[use].tolist())
        for k in fold.tolist():
            m, c = int(cells.model[k]), int(cells.column[k])
            if m in rows:
                errors.append(abs(float(predicted[m, c] - cells.y[k])))
                on_type.append((m, int(cells.type_of[c])) in pairs)
    return np.array(errors), np.array(on_type, dtype=bool)


def _cold_errors(cells: _Cells, taught: BoolArray, rng: np.random.Generator) -> FloatArray:
    """|error| on the held-out measured cells of models that keep only two cells."""
    measured = taught & cells.measured()
    errors: list[float] = []
    for group in np.array_split(rng.permutation(len(cells.models)), min(COLD_FOLDS, len(cells.models))):
        use = taught & ~np.isin(cells.model, group)
        hidden: list[int] = []
        for m in group.tolist():
            mine = rng.permutation(np.flatnonzero(measured & (cells.model == m)))
            use[mine[:2]] = True
            hidden += mine[2:].tolist()
        predicted = _fit(cells, use, rng)
        errors += np.abs(predicted[cells.model[hidden], cells.column[hidden]] - cells.y[hidden]).tolist()
    return np.array(errors)


def _quantile(errors: FloatArray, every: FloatArray, coverage: float) -> float:
    """The conformal quantile over n errors and a future one; over all kinds together if one kind has too few errors."""
    of = errors if len(errors) >= 20 else every
    if not len(of):
        return math.log(2.0)  # there are no errors at all; assume a factor of two
    rank = min(math.ceil((len(of) + 1) * coverage), len(of))
    return float(np.sort(of)[rank - 1])


def _counts(cells: _Cells, use: BoolArray) -> IntArray:
    known = np.zeros((len(cells.models), len(cells.columns)), dtype=np.int64)
    known[cells.model[use], cells.column[use]] = 1
    return known
