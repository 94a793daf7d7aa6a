"""OEF at scale: CPU seconds of one thread, beside the program with all envy rows on the same instance.

`python -m benchmarks.oef` prints the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.numerics.fairness import audit, normalise
from fairlead.numerics.solve import Limit, LinearProgram, Optimal, columns_from_entries, solve
from fairlead.policies.oef import cooperative, non_cooperative

ALL_PAIRS_LIMIT_S = 120.0  # the plain program is stopped here; its ratio is then "at least"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    n: int
    k: int
    cpu_s: float
    target_s: float | None = None
    all_pairs_s: float | None = None
    ratio: float | None = None  # all pairs / ours, or cold / warm
    max_envy: float | None = None
    off_total: float | None = None  # relative distance from the total of all pairs

    def __str__(self) -> str:
        def cell(value: float | None, form: str) -> str:
            return "-" if value is None else format(value, form)

        return (
            f"{self.name:34} {self.n:5} {self.k:3} {self.cpu_s:9.4f} {cell(self.target_s, '.1f'):>7} "
            f"{cell(self.all_pairs_s, '.1f'):>10} {cell(self.ratio, '.1f'):>7} "
            f"{cell(self.max_envy, '.0e'):>9} {cell(self.off_total, '.0e'):>10}"
        )


HEADER = f"{'':34} {'n':>5} {'k':>3} {'cpu_s':>9} {'target':>7} {'all pairs':>10} {'ratio':>7} {'max_envy':>9} {'off total':>10}"


def run() -> list[Row]:
    """Every row, printed as it is measured."""
    print(HEADER)
    rows: list[Row] = []
    _cpu(lambda: cooperative(np.ones((2, 2)), np.ones(2), np.ones(2)))  # the solver's import is not ours to count
    for n, k, target_s, plain in (
        (100, 3, None, True),
        (300, 3, 0.5, True),
        (300, 10, 3.0, True),
        (1000, 3, 5.0, False),
    ):
        rows += _print(_scale_rows("all different", *general(n + 1, k, seed=1), target_s=target_s, plain=plain))
    speedup, capacity, weight = general(1001, 10, seed=1)
    of = np.random.default_rng(1).integers(0, 100, 1000)
    mixed = np.vstack([speedup[:100][of], speedup[-1:]])
    return rows + _print(_scale_rows("100 distinct vectors", mixed, capacity, weight, target_s=0.3, plain=False))


def general(n: int, k: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Tenants whose step ratios between neighbouring types are drawn one by one: no order among them."""
    rng = np.random.default_rng(seed)
    steps = np.log(rng.uniform(1.0, 2.5, (n, k - 1)))
    speedup = np.hstack([np.ones((n, 1)), np.exp(np.cumsum(steps, axis=1))])
    return speedup, rng.integers(8, 40, k).astype(np.float64), np.ones(n)


def all_pairs(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> float | None:
    """The plain cooperative program: every envy row handed to the solver. None where it did not end in time."""
    W = normalise(speedup)
    n, k = W.shape
    a, b = np.nonzero(~np.eye(n, dtype=np.bool_))
    types = np.arange(k)
    start, index, value = columns_from_entries(
        row=np.concatenate([np.tile(types, n), np.repeat(k + np.arange(len(a)), 2 * k)]),
        column=np.concatenate([np.arange(n * k), np.hstack([a[:, None] * k + types, b[:, None] * k + types]).ravel()]),
        value=np.concatenate([np.ones(n * k), np.hstack([W[a] / weight[a, None], -W[a] / weight[b, None]]).ravel()]),
        columns=n * k,
    )
    program = LinearProgram(
        cost=-W.ravel(),
        low=np.zeros(n * k),
        high=np.full(n * k, np.inf),
        row_low=np.concatenate([np.full(k, -np.inf), np.zeros(len(a))]),
        row_high=np.concatenate([capacity, np.full(len(a), np.inf)]),
        start=start,
        index=index,
        value=value,
    )
    outcome = solve(program, Limit(seconds=ALL_PAIRS_LIMIT_S))
    return -outcome.objective if isinstance(outcome, Optimal) else None


def _scale_rows(
    name: str,
    speedup: FloatArray,
    capacity: FloatArray,
    weight: FloatArray,
    *,
    target_s: float | None,
    plain: bool,
) -> list[Row]:
    """Cold without the last tenant; warm when it joins; warm when the first one leaves; the other mode."""
    n, k = len(weight) - 1, len(capacity)
    W, w = speedup[:n], weight[:n]
    cold, cold_s = _cpu(lambda: cooperative(W, capacity, w))
    _, join_s = _cpu(lambda: cooperative(speedup, capacity, weight, warm=cold.warm))
    _, cold_join_s = _cpu(lambda: cooperative(speedup, capacity, weight))
    _, leave_s = _cpu(lambda: cooperative(W[1:], capacity, w[1:], warm=cold.warm))
    _, cold_leave_s = _cpu(lambda: cooperative(W[1:], capacity, w[1:]))
    _, other_s = _cpu(lambda: non_cooperative(W, capacity, w))
    report, audit_s = _cpu(lambda: audit(W, cold.shares, capacity, w, pareto=False))
    best, plain_s = _cpu(lambda: all_pairs(W, capacity, w)) if plain else (None, None)
    total = float(np.sum(W * cold.shares))
    return [
        Row(
            f"cooperative, {name}",
            n,
            k,
            cold_s,
            target_s,
            plain_s,
            plain_s / cold_s if plain_s else None,
            report.max_envy,
            abs(total / best - 1) if best else None,
        ),
        Row("  warm, one tenant joins", n + 1, k, join_s, ratio=cold_join_s / join_s),
        Row("  warm, one tenant leaves", n - 1, k, leave_s, ratio=cold_leave_s / leave_s),
        Row("  non-cooperative", n, k, other_s),
        Row("  audit without the Pareto gap", n, k, audit_s),
    ]


def _cpu(work: Callable[[], T]) -> tuple[T, float]:
    start_s = time.process_time()
    result = work()
    return result, time.process_time() - start_s


def _print(rows: list[Row]) -> list[Row]:
    for row in rows:
        print(row)
    return rows


if __name__ == "__main__":
    run()
