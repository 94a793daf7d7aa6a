"""An interior-point method for one program: divide GPUs of several types among thousands of distinct jobs.

    max  c z + sum_g n_g h_g.x_g
    s.t. r_g.x_g - k_g z - s_g = f_g            every group g: its speed is its floor plus s_g
         sum_t x_gt + u_g = 1                   its gang, idle for u_g of the time
         sum_g n_g x_gt + e_t = m_t + w_t z     every type t, e_t GPUs idle
         x, s, u, e, z >= 0

x_gt is the part of its time that each job of group g spends on type t, n_g the GPUs that the group's jobs take when they
all run. Groups are coupled only by the rows of the types. Each Newton step therefore consists of a 2 x 2 system for every
group, solved for all groups at once, and one system with (types + 1)^2 entries. Its cost grows with groups x types^2 and
does not depend on ties, through which a simplex method walks one by one. The method is Mehrotra's predictor-corrector
(SIAM J. Optimization 2, 1992).

Dual variables: y of x, a of s (the price of a group's floor), b of u, p of e (the price of a GPU), v of z:

    y_gt = p_t + b_g - a_g r_gt - h_gt,     v = sum_g n_g k_g a_g - w.p - c
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray

GAP = 1e-9  # products of variables and their duals, on average, where everything is of the order of 1
ROW = 1e-9  # the residual that a row may leave
WORST, LOST = 100.0, 1e6  # the error that a solution may have; an error this many times the best one never recovers
MOST_STEPS = 80
STEP = 0.99  # of the way to the boundary
TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The program above. A job cannot run where its rate is 0."""

    rate: FloatArray  # t,g  r; the largest of each group is 1
    gpus: FloatArray  # g  n
    capacity: FloatArray  # t  m; negative where GPUs that grow with z are already taken
    floor: FloatArray  # g  f
    rise: FloatArray  # g  k, by which the floor grows with z
    widen: FloatArray  # t  w, by which the capacity grows with z
    gain: FloatArray  # t,g  h, per GPU
    level: float  # c


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    part: FloatArray  # t,g  x
    level: float  # z
    price: FloatArray  # t  p of a GPU; without gains in units in which all GPUs together cost about 1
    floor_price: FloatArray  # g  a; almost 0 where the group has more than its floor
    steps: int


def solve_division(program: Program) -> Division | None:
    """The optimal division; None if the method does not converge, which happens if the floors cannot all be met."""
    whole = float(np.maximum(program.capacity, 0.0).sum() + program.widen.sum())
    if not whole > 0 or not program.gpus.size:
        return None
    # In units of the whole cluster, of the largest gain and of the likely level, everything is of the order of 1.
    unit = float(np.abs(program.gain).max()) or 1.0
    likely = _likely_level(program, whole)
    q = Program(
        program.rate,
        program.gpus / whole,
        program.capacity / whole,
        program.floor,
        program.rise * likely,
        program.widen * likely / whole,
        program.gain / unit,
        program.level,
    )
    # A program without an interior may overflow: its error is then not a number, and the best point so far counts.
    with np.errstate(over="ignore", invalid="ignore"):
        return _best_point(q, likely, unit)


def _best_point(q: Program, likely: float, unit: float) -> Division | None:
    point = _Point(q)
    best, least = None, np.inf
    for step in range(MOST_STEPS):
        lacks = point.lacks()
        error = point.error(lacks)
        if error < least:
            x, _, _, _, z = point.variables
            _, a, _, p, _ = point.duals
            best, least = Division(x.copy(), float(z[0]) * likely, p * likely * unit, a * likely * unit, step), error
        # At the limit of double precision, residuals grow again as the gap closes: the best point counts.
        if error < 1.0 or not error < LOST * least or not point.advance(lacks):
            break
    return best if least < WORST else None


def _likely_level(q: Program, whole: float) -> float:
    """The level z if every group were spread evenly over its types."""
    spread = np.maximum(q.rate.sum(axis=0) / np.maximum((q.rate > 0).sum(axis=0), 1), TINY)  # g
    need = float(q.gpus @ (q.rise / spread)) / whole
    if need > 0:
        return min(1.0 / need, 1.0 / float(q.rise.max()))
    taken = float(q.gpus @ (q.floor / spread) - np.minimum(q.capacity, 0.0).sum())
    return max(taken / whole, TINY) if q.widen.any() else 1.0


_Views = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]  # t,g  g  g  t  1


class _Point:
    """The current iterate: (x, s, u, e, z) in one array, their duals (y, a, b, p, v) in another."""

    def __init__(self, q: Program) -> None:
        """The first iterate: every group has a little of every type, at prices of the right order."""
        self.q, self.runs = q, q.rate > 0
        types, groups = q.rate.shape
        size = (types + 2) * groups + types + 1
        self._all, self._all_duals = np.empty(size), np.empty(size)
        self.variables, self.duals = self.views(self._all), self.views(self._all_duals)
        self._nowhere = np.zeros(size)  # 1 where a group cannot run: x = 0 and y = 1 stay fixed there
        self._nowhere[: types * groups] = ~self.runs.ravel()
        self._count: int = size - int(self._nowhere.sum())
        (x, s, u, e, z), (y, a, b, p, v) = self.variables, self.duals
        x[:] = (0.5 * min(1.0, 1.0 / float(q.gpus.sum())) + 0.1) / types * self.runs
        z[:] = 1.0
        s[:] = np.maximum((q.rate * x).sum(axis=0) - q.floor - q.rise, 0.1)
        u[:] = np.maximum(1.0 - x.sum(axis=0), 0.1)
        e[:] = np.maximum(q.capacity + q.widen - x @ q.gpus, 0.1)
        need = float(q.gpus @ q.rise)
        a[:] = b[:] = p[:] = scale = q.level / need if need > 0 else 1.0
        y[:] = np.where(self.runs, np.maximum(p[:, None] + b - a * q.rate - q.gain, scale), 1.0)
        v[:] = max(need * scale - q.level, 0.1 * abs(q.level))

    def views(self, flat: FloatArray) -> _Views:
        types, groups = self.q.rate.shape
        cells, rows = types * groups, (types + 1) * groups
        ends = rows + groups, rows + groups + types
        return (
            flat[:cells].reshape(types, groups),
            flat[cells:rows],
            flat[rows : ends[0]],
            flat[ends[0] : ends[1]],
            flat[ends[1] :],
        )

    @property
    def gap(self) -> float:
        return float(np.dot(self._all, self._all_duals)) / self._count

    def lacks(self) -> _Views:
        """The residuals (right minus left side) of each kind of row: cells, floors, gangs, types, level."""
        q, (x, s, u, e, z), (y, a, b, p, v) = self.q, self.variables, self.duals
        return (
            (y - (p[:, None] + b - a * q.rate - q.gain)) * self.runs,
            q.floor + q.rise * z + s - (q.rate * x).sum(axis=0),
            1.0 - x.sum(axis=0) - u,
            q.capacity + q.widen * z - x @ q.gpus - e,
            q.level + v + q.widen @ p - q.gpus @ (q.rise * a),
        )

    def error(self, lacks: _Views) -> float:
        """1 if everything is just within its tolerance. Residuals of dual rows are relative to the largest dual."""
        cell, floor, gang, kind, level = (float(np.abs(lack).max()) for lack in lacks)
        largest = max(1.0, float(self._all_duals.max()))
        return max((self.gap / GAP, floor / ROW, gang / ROW, kind / ROW, cell / ROW / largest, level / ROW / largest))

    def advance(self, lacks: _Views) -> bool:
        """Take one step towards the optimum. False if the step is not finite."""
        newton, gap = _Newton(self), self.gap
        product = self._all * self._all_duals
        step, step_dual = newton.direction(lacks, -product)
        there = self._all + self._reach(self._all, step) * step
        there_dual = self._all_duals + self._reach(self._all_duals, step_dual) * step_dual
        centre = gap * (max(float(there @ there_dual), 0.0) / self._count / gap) ** 3
        step, step_dual = newton.direction(lacks, centre - product - step * step_dual)
        if not (np.isfinite(step).all() and np.isfinite(step_dual).all()):
            return False
        self._all += min(1.0, STEP * self._reach(self._all, step)) * step
        self._all_duals += min(1.0, STEP * self._reach(self._all_duals, step_dual)) * step_dual
        return True

    def _reach(self, side: FloatArray, step: FloatArray) -> float:
        """The step length at which the first variable becomes 0; at most 1 / STEP."""
        return 1.0 / max(-float((step / (side + self._nowhere)).min()), STEP)


class _Newton:
    """The factored linear system of one iterate; it is solved for two right-hand sides.

    With d = x / y, S = s / a, U = u / b and the mean rate w = sum_t d_t r_t / D, D = sum_t d_t, of each group, a step is

        dx_t = g_t - d_t (dp_t + db' - (r_t - w) da),     db' = db - w da

    and [A E; E C] (da, db') = right, A = sum_t d_t (r_t - w)^2 + S + w^2 U,  E = w U,  C = D + U. Near the optimum some d
    are 1e10 and others 1e-10, so nothing here is a difference of large numbers that nearly cancel.
    """

    def __init__(self, at: _Point) -> None:
        q, (x, s, u, e, z), (y, a, b, p, v) = at.q, at.variables, at.duals
        self._at, self._d = at, (d := x / y)  # t,g
        types = len(q.capacity)
        D = d.sum(axis=0)
        part = d / D
        self._w = w = (part * q.rate).sum(axis=0)  # g
        self._off = off = np.zeros_like(d)  # t,g  r - w
        for t in range(types):
            off += part[t] * (q.rate - q.rate[t])
        self._doff = doff = d * off
        self._S, self._U = S, U = s / a, u / b
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
        matrix[:types, types] = matrix[types, :types] = self._da @ (n * k) - q.widen
        matrix[types, types] = float((n * k) @ self._da_z + v[0] / z[0])
        self._matrix = matrix
        # The step of a gang's largest pivot comes from its row, because the formula above would lose its digits.
        self._pivot = np.vstack((d, U)).argmax(axis=0)  # g
        self._loose = S > 1.0  # g  the same for the group's floor

    def direction(self, lacks: _Views, wanted: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Steps of the variables and of the duals that remove the residuals and change the products by `wanted`."""
        at, q, w, (cell, floor, gang, kind, level) = self._at, self._at.q, self._w, lacks
        (_, _, _, e, z), (y, a, b, p, v) = at.variables, at.duals
        want = at.views(wanted)
        types = len(q.capacity)
        g = want[0] / y * at.runs + self._d * cell  # t,g
        by_s, by_u = want[1] / a, want[2] / b
        right_a = floor - w * gang - (self._off * g).sum(axis=0) + by_s + w * by_u
        right_b = g.sum(axis=0) + by_u - gang
        da, db = self._C * right_a - self._E * right_b, self._A * right_b - self._E * right_a
        move = g - self._d * db + self._doff * da  # t,g  dx while dp = dz = 0
        right = np.append(kind - move @ q.gpus - want[3] / p, level + want[4] / z - (q.gpus * q.rise) @ da)
        solved = _solve(self._matrix, right)
        dp, dz = solved[:-1], solved[-1:]
        da += dp @ self._da + dz * self._da_z
        db += dp @ self._db + dz * self._db_z  # b'
        step, step_dual = np.empty(len(wanted)), np.empty(len(wanted))
        (dx, ds, du, de, step_z), (dy, da_, db_, dp_, dv) = at.views(step), at.views(step_dual)
        dy[:] = (dp[:, None] + db - da * self._off - cell) * at.runs
        dx[:] = g - self._d * (dp[:, None] + db) + self._doff * da
        da_[:], db_[:], dp_[:], dv[:] = da, db + w * da, dp, (want[4] - v * dz) / z
        de[:], step_z[:] = (want[3] - e * dp) / p, dz
        du[:] = by_u - self._U * db_
        every = np.arange(len(w))
        rows = np.vstack((dx, du))  # t + 1,g
        rows[self._pivot, every] = 0.0
        rows[self._pivot, every] = gang - rows.sum(axis=0)
        dx[:], du[:] = rows[:types], rows[types]
        ds[:] = np.where(self._loose, (q.rate * dx).sum(axis=0) - q.rise * dz - floor, by_s - self._S * da)
        return step, step_dual


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve a symmetric system with entries of any size: it is scaled to a diagonal of 1 first."""
    scale = 1.0 / np.sqrt(np.maximum(np.abs(matrix.diagonal()), TINY))
    try:
        return np.asarray(scale * np.linalg.solve(matrix * scale * scale[:, None], right * scale))
    except np.linalg.LinAlgError:  # exactly singular: the caller stops at a step that is not finite
        return np.full(len(right), np.nan)
