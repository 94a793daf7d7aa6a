"""Divide GPUs of several types between thousands of unlike jobs: an interior-point method made for this one program.

    max  c z + sum_g n_g h_g.x_g
    s.t. r_g.x_g - k_g z - s_g = f_g     every group g: its speed is its floor, and s_g more
         sum_t x_gt + u_g = 1            its gang, u_g of the time idle
         sum_g n_g x_gt + e_t = m_t      every type t, e_t GPUs idle
         x, s, u, e, z >= 0

x_gt is the part of its time that each job of group g spends on type t, n_g the GPUs that the group's jobs take when they
all run. Groups meet only in the rows of the types. So each Newton step is a system of 2 x 2 for every group, solved for
all of them at once, and one of (types + 1) squared: its cost grows with groups x types^2, and not with ties, through which
a simplex method walks one by one. Mehrotra's predictor and corrector (SIAM J. Optimization 2, 1992).

Dual variables: y of x, a of s (the price of a group's floor), b of u, p of e (the price of a GPU), v of z:

    y_gt = p_t + b_g - a_g r_gt - h_gt,     v = sum_g n_g k_g a_g - c
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray

GAP = 1e-9  # products of variables and their duals, on average, where everything is of the order of 1
ROW = 1e-9  # what a row may lack
WORST, LOST = 100.0, 1e6  # an answer may be this many times further off; this much above the best there is no way back
MOST_STEPS = 80
STEP = 0.99  # of the way to the boundary
TINY = 1e-300

# (x, s, u, e, z) or their duals (y, a, b, p, v): arrays t,g  g  g  t  1
_Side = list[FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """As above. Where the rate is 0 the job cannot run."""

    rate: FloatArray  # t,g  r, the largest of each group is 1
    gpus: FloatArray  # g  n
    capacity: FloatArray  # t  m
    floor: FloatArray  # g  f
    rise: FloatArray  # g  k, by which the floor grows with z; zeros leave z at 0
    gain: FloatArray  # t,g  h, per GPU
    level: float  # c


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    part: FloatArray  # t,g  x
    level: float  # z
    price: FloatArray  # t  p of a GPU, in units in which all GPUs together cost about 1
    floor_price: FloatArray  # g  a; next to nothing where the group has more than its floor
    steps: int


def solve_division(program: Program) -> Division | None:
    """None where it does not converge, as it will where the floors cannot all be met."""
    whole = float(program.capacity.sum())
    if not whole > 0 or not program.gpus.size:
        return None
    # In parts of the whole cluster, with the largest gain and the likely level at 1, everything is of the order of 1.
    unit = float(np.abs(program.gain).max()) or 1.0
    likely = _likely_level(program, whole)
    q = Program(
        program.rate,
        program.gpus / whole,
        program.capacity / whole,
        program.floor,
        program.rise * likely,
        program.gain / unit,
        program.level,
    )
    runs = q.rate > 0
    primal, dual = _start(q, runs)
    best, least = None, np.inf
    for step in range(MOST_STEPS):
        lacks = _lacks(q, runs, primal, dual)
        gap = _gap(primal, dual) / _products(runs)
        error = _error(lacks, dual, gap)
        if error < least:
            level = float(primal[4][0]) * likely
            best, least = Division(primal[0].copy(), level, dual[3].copy(), dual[1].copy(), step), error
        # Beyond the reach of double precision rows open again as the gap closes: the best point counts.
        if error < 1.0 or not error < LOST * least or not _advance(q, runs, primal, dual, lacks, gap):
            break
    return best if least < WORST else None


def _likely_level(q: Program, whole: float) -> float:
    """Where the level would end if every group were spread evenly over its types."""
    spread = np.maximum(q.rate.sum(axis=0) / np.maximum((q.rate > 0).sum(axis=0), 1), TINY)  # g
    need = float(q.gpus @ (q.rise / spread)) / whole
    return min(1.0 / need, 1.0 / float(q.rise.max())) if need > 0 else 1.0


def _start(q: Program, runs: BoolArray) -> tuple[_Side, _Side]:
    """Everybody a little of everything, at prices of the right order."""
    types = len(q.capacity)
    busy = min(1.0, 1.0 / float(q.gpus.sum()))
    x = np.where(runs, (0.5 * busy + 0.1) / types, 0.0)
    z = np.ones(1)
    s = np.maximum((q.rate * x).sum(axis=0) - q.floor - q.rise, 0.1)
    u = np.maximum(1.0 - x.sum(axis=0), 0.1)
    e = np.maximum(q.capacity - x @ q.gpus, 0.1)
    need = float(q.gpus @ q.rise)
    scale = q.level / need if need > 0 else 1.0
    a, b, p = (np.full(shape, scale) for shape in (q.gpus.shape, q.gpus.shape, q.capacity.shape))
    y = np.where(runs, np.maximum(p[:, None] + b - a * q.rate - q.gain, scale), 0.0)
    v = np.array([max(float(q.gpus @ (q.rise * a)) - q.level, 0.1 * abs(q.level))])
    return [x, s, u, e, z], [y, a, b, p, v]


def _lacks(q: Program, runs: BoolArray, primal: _Side, dual: _Side) -> _Side:
    """Right minus left side of each kind of row: floors, gangs, types, cells, level."""
    (x, s, u, e, z), (y, a, b, p, v) = primal, dual
    return [
        q.floor + q.rise * z + s - (q.rate * x).sum(axis=0),
        1.0 - x.sum(axis=0) - u,
        q.capacity - x @ q.gpus - e,
        (y - (p[:, None] + b - a * q.rate - q.gain)) * runs,
        q.level + v - q.gpus @ (q.rise * a),
    ]


def _error(lacks: _Side, dual: _Side, gap: float) -> float:
    """1 where everything is just within its tolerance. Rows of prices count relative to the largest of them."""
    largest = max(1.0, *(float(one.max()) for one in dual))
    lack = [float(np.abs(row).max()) for row in lacks]
    return max(gap / GAP, max(lack[:3]) / ROW, max(lack[3:]) / (ROW * largest))


def _advance(q: Program, runs: BoolArray, primal: _Side, dual: _Side, lacks: _Side, gap: float) -> bool:
    """One step towards the optimum, in place. False where the numbers have run out."""
    newton = _Newton(q, runs, primal, dual)
    products = [one * other for one, other in zip(primal, dual, strict=True)]
    first, first_dual = newton.direction(lacks, [-product for product in products])
    there = [one + _reach(primal, first) * d for one, d in zip(primal, first, strict=True)]
    there_dual = [one + _reach(dual, first_dual) * d for one, d in zip(dual, first_dual, strict=True)]
    centre = (max(_gap(there, there_dual), 0.0) / _products(runs) / gap) ** 3 * gap
    wanted = [centre - product - d * e for product, d, e in zip(products, first, first_dual, strict=True)]
    wanted[0] *= runs
    step, step_dual = newton.direction(lacks, wanted)
    if not all(np.isfinite(d).all() for d in (*step, *step_dual)):
        return False
    for side, direction in ((primal, step), (dual, step_dual)):
        length = min(1.0, STEP * _reach(side, direction))
        for one, d in zip(side, direction, strict=True):
            one += length * d
    return True


class _Newton:
    """The linear system of one point, factored; two right-hand sides are solved with it.

    With d = x / y, S = s / a, U = u / b and the mean rate w = sum_t d_t r_t / D, D = sum_t d_t, of each group, a step is

        dx_t = g_t - d_t (dp_t + db' - (r_t - w) da),     db' = db - w da

    and [A E; E C] (da, db') = right, A = sum_t d_t (r_t - w)^2 + S + w^2 U,  E = w U,  C = D + U. Near the optimum some d
    are 1e10 and others 1e-10. So nothing here is a difference of large numbers that nearly cancel.
    """

    def __init__(self, q: Program, runs: BoolArray, primal: _Side, dual: _Side) -> None:
        (x, s, u, e, z), (y, a, b, p, v) = primal, dual
        self._q, self._primal, self._dual = q, primal, dual
        self._y = np.where(runs, y, 1.0)
        self._d = d = x / self._y  # t,g
        types = len(q.capacity)
        D = d.sum(axis=0)
        part = d / D
        self._w = w = (part * q.rate).sum(axis=0)  # g
        self._off = off = sum((part[t] * (q.rate - q.rate[t]) for t in range(types)), np.zeros_like(d))  # t,g  r - w
        self._doff = doff = d * off
        S, U = s / a, u / b
        free = (doff * off).sum(axis=0) + S
        A, E, C = free + w * w * U, w * U, D + U
        det = A * D + free * U
        self._A, self._E, self._C = A / det, E / det, C / det
        n, k = q.gpus, q.rise
        # Right-hand sides per dp_t, per dz: (d_t off_t, -d_t), (k, 0).
        self._da, self._db = d * (self._C * off + self._E), -d * (self._E * off + self._A)  # t,g
        self._da_z, self._db_z = self._C * k, -self._E * k
        matrix = np.empty((types + 1, types + 1))
        nd = n * d
        cross = (n * doff) @ self._da.T + (nd * self._E) @ doff.T
        matrix[:types, :types] = cross + (nd * self._A) @ d.T
        others = (np.ones((types, types)) - np.eye(types)) @ d  # t,g  sum of the other d
        own = (nd * (self._A * others + free * U / det)).sum(axis=1)
        matrix[np.arange(types), np.arange(types)] = cross.diagonal() - own - e / p
        matrix[:types, types] = matrix[types, :types] = self._da @ (n * k)
        matrix[types, types] = float((n * k) @ self._da_z + v[0] / z[0])
        self._matrix = matrix
        # The row of a gang gives the step of the largest of its pivots, which the formula above would blur.
        self._pivot = np.vstack((d, U)).argmax(axis=0)  # g
        self._loose = S > 1.0  # g  the same for its floor

    def direction(self, lacks: _Side, wanted: _Side) -> tuple[_Side, _Side]:
        """Steps of the variables and of the duals that close the rows and bring the products to where they are wanted."""
        q, w, (floor, gang, kind, cell, level) = self._q, self._w, lacks
        (_, s, u, e, z), (_, a, b, p, v) = self._primal, self._dual
        types = len(q.capacity)
        g = wanted[0] / self._y + self._d * cell  # t,g
        right_a = floor - w * gang - (self._off * g).sum(axis=0) + wanted[1] / a + w * wanted[2] / b
        right_b = g.sum(axis=0) + wanted[2] / b - gang
        da, db = self._C * right_a - self._E * right_b, self._A * right_b - self._E * right_a
        move = g - self._d * db + self._doff * da  # t,g  dx while dp = dz = 0
        right = np.append(kind - move @ q.gpus - wanted[3] / p, level + wanted[4] / z - (q.gpus * q.rise) @ da)
        solved = _solve(self._matrix, right)
        dp, dz = solved[:-1], solved[-1:]
        da += dp @ self._da + dz * self._da_z
        db += dp @ self._db + dz * self._db_z  # b'
        dx = g - self._d * (dp[:, None] + db) + self._doff * da
        dy = (dp[:, None] + db - da * self._off - cell) * (self._d > 0)
        db += w * da
        steps = np.vstack((dx, (wanted[2] - u * db) / b))  # t + 1,g  dx and du
        every = np.arange(len(w))
        steps[self._pivot, every] = 0.0
        steps[self._pivot, every] = gang - steps.sum(axis=0)
        dx, du = steps[:types], steps[types]
        ds = np.where(self._loose, (q.rate * dx).sum(axis=0) - q.rise * dz - floor, (wanted[1] - s * da) / a)
        return [dx, ds, du, (wanted[3] - e * dp) / p, dz], [dy, da, db, dp, (wanted[4] - v * dz) / z]


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Symmetric, with entries of any size: brought to a diagonal of 1 first."""
    scale = 1.0 / np.sqrt(np.maximum(np.abs(matrix.diagonal()), TINY))
    try:
        return np.asarray(scale * np.linalg.solve(matrix * scale * scale[:, None], right * scale))
    except np.linalg.LinAlgError:  # exactly singular: the caller sees that there is no step
        return np.full(len(right), np.nan)


def _reach(side: _Side, direction: _Side) -> float:
    """How far until the first variable is 0; at most 1 / STEP."""
    worst = max(float((-d / np.where(one > 0, one, 1.0)).max()) for one, d in zip(side, direction, strict=True))
    return 1.0 / max(worst, STEP)


def _gap(primal: _Side, dual: _Side) -> float:
    return sum(float(np.vdot(one, other)) for one, other in zip(primal, dual, strict=True))


def _products(runs: BoolArray) -> int:
    types, groups = runs.shape
    return int(np.count_nonzero(runs) + 2 * groups + types + 1)
