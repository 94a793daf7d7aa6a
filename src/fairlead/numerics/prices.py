"""The largest total of speeds above given floors, computed from prices of the GPU types, for thousands of distinct jobs.

    max  sum_g n_g c_g r_g.x_g   s.t.  r_g.x_g >= f_g,   sum_t x_gt <= 1,   sum_g n_g x_gt <= m_t,   x >= 0

with the letters of `interior`. At prices p of a GPU, each group has a best choice of its own, and it is one of few: all
its time on one type, just enough of one type for its floor, or two types that together just meet the floor. The value
of the choices,

    D(p) = m.p + sum_g n_g max_v (c_g r_g.x_v - p.x_v),

is convex and never below the largest total; its minimum is the largest total. It has a kink wherever a group changes
its choice, so it is smoothed, and Newton's method in p alone follows its minimum while the smoothing is reduced:

    D_mu(p) = m.p + sum_g n_g mu_g log sum_v exp((c_g r_g.x_v - p.x_v) / mu_g) - mu sum_t m_t log p_t

where mu_g is mu times the difference between the choices of the group: its floor, or its value if that is more.
Long before mu is small, all but a few groups have a clear choice. They get it, and the interior-point method divides
what is left among the others. Its prices prove the solution: a group that would choose differently at these prices joins
the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.numerics.interior import Program, solve_division

NEVER = -1e30  # value of a choice that a group does not have
MU = (0.1, 0.02, 0.004, 0.001)  # of the mean value of a GPU
FEW = 300  # undecided groups: with fewer, dividing what is left among them is faster than a smaller mu
NEAR = 0.1  # of mu: if a Newton step promises less of a decrease, the minimum is near enough
MOST_STEPS = 40
LEAST = 1e-6  # of the mean value: smaller differences do not matter
INSIDE = 0.9  # of the way to a price of 0
BACK = 0.3  # of a step that went too far
UNDECIDED = 10.0  # of mu: choices this close may still change
SURE = 1e-8  # of the mean value: choices this close are equal
MOST_ROUNDS = 4


def largest_total(
    rate: FloatArray, gpus: FloatArray, capacity: FloatArray, floor: FloatArray, value: FloatArray
) -> FloatArray | None:
    """x (t,g) from r (t,g), n (g), m (t), f (g) and c (g); None if the floors cannot all be met or optimality is not proved."""
    up = capacity > 0
    whole, unit = float(capacity.sum()), float(gpus @ value) / max(float(gpus.sum()), 1e-300)
    if not unit > 0 or not up.any():
        return None
    m, n, c = capacity[up] / whole, gpus / whole, value / unit
    choices = _Choices.of(rate[up], floor, c, np.maximum(floor, np.clip(c, LEAST, 1.0)))
    fair = _fair_prices(choices, n, m, least=float(n @ (c * floor)))
    if fair is None:
        return None
    settled = _settle(
        choices, *fair, Program(rate[up], n, m, floor, np.zeros_like(n), np.zeros_like(m), rate[up] * c, -1.0)
    )
    if settled is None:
        return None
    part = np.zeros_like(rate)
    part[up] = settled
    return part


@dataclass(frozen=True, slots=True, eq=False)
class _Choices:
    """The choices of each group: the vertices of what its floor and its gang allow."""

    use: FloatArray  # t,v,g  x_v
    value: FloatArray  # v,g  c_g r_g.x_v
    scale: FloatArray  # g  of the differences between choices

    @classmethod
    def of(cls, rate: FloatArray, floor: FloatArray, value: FloatArray, scale: FloatArray) -> _Choices:
        types, groups = rate.shape
        pairs = [(one, other) for one in range(types) for other in range(one)]
        use = np.zeros((types, 2 * types + len(pairs), groups))
        runs, meets = rate > 0, (rate >= floor) & (rate > 0)  # t,g
        every = np.arange(types)
        use[every, every] = 1.0
        use[every, types + every] = np.where(meets, floor / np.where(meets, rate, 1.0), 0.0)
        worth = np.where(meets, value * rate, NEVER), np.where(meets, value * floor, NEVER)
        both = np.empty((len(pairs), groups))
        for v, (one, other) in enumerate(pairs):
            mix = (meets[one] != meets[other]) & runs[one] & runs[other]
            part = np.where(mix, (floor - rate[other]) / np.where(mix, rate[one] - rate[other], 1.0), 0.0)
            use[one, 2 * types + v], use[other, 2 * types + v] = part, 1.0 - part
            both[v] = np.where(mix, value * floor, NEVER)
        return cls(use, np.vstack((*worth, both)), scale)

    def net(self, price: FloatArray) -> FloatArray:
        """v,g  value less price"""
        cost = price @ self.use.reshape(len(price), -1)
        return np.asarray(self.value - cost.reshape(self.value.shape))


def _fair_prices(choices: _Choices, n: FloatArray, m: FloatArray, least: float) -> tuple[FloatArray, BoolArray] | None:
    """Prices (t) near the minimum of D, and which groups (g) are undecided at them.

    None if D falls below `least`, the least value of a division that meets the floors, or after too many steps.
    """
    price, steps = np.full(len(m), 0.5), 0
    for mu in MU:
        step, lowest = np.zeros(len(m)), np.inf
        while True:
            steps += 1
            net = choices.net(price + step)
            best = net.max(axis=0)  # g
            worth = float(m @ (price + step) + n @ best)  # D
            if worth < least - SURE or steps > MOST_STEPS:
                return None
            weight = np.exp((net - best) / (mu * choices.scale))  # v,g
            smooth = worth + mu * float((n * choices.scale) @ np.log(weight.sum(axis=0)) - m @ np.log(price + step))
            if smooth > lowest:
                step *= BACK
                continue
            price, lowest = price + step, smooth
            step, promise = _newton_step(choices, weight, price, n, m, mu)
            if not promise >= NEAR * mu:
                break
            step /= max(1.0, float((-step / price).max()) / INSIDE)
        undecided = (net > best - UNDECIDED * mu * choices.scale).sum(axis=0) > 1
        if np.count_nonzero(undecided) <= FEW:
            break
    return price, undecided


def _newton_step(
    choices: _Choices, weight: FloatArray, price: FloatArray, n: FloatArray, m: FloatArray, mu: float
) -> tuple[FloatArray, float]:
    """The Newton step (t) of D_mu to where its slope vanishes, and the rate at which D_mu falls along it at its start."""
    types, use = len(price), choices.use
    weight = weight * (n / weight.sum(axis=0))  # v,g  GPUs
    part = np.einsum("tvg,vg->tg", use, weight)
    slope = m - part.sum(axis=1) - mu * m / price
    mixed = (use * (weight / choices.scale)).reshape(types, -1) @ use.reshape(types, -1).T
    curve = (mixed - (part / (n * choices.scale)) @ part.T) / mu + np.diag(mu * m / price**2)
    try:
        step = -np.linalg.solve(curve, slope)
    except np.linalg.LinAlgError:
        return np.zeros(types), 0.0
    return step, -float(slope @ step)


def _settle(choices: _Choices, price: FloatArray, rows: BoolArray, q: Program) -> FloatArray | None:
    """t,g  decided groups get their choice and the interior-point method divides the rest among `rows` (g).

    Groups whose choice is wrong at the prices of that division join `rows` until the prices agree.
    """
    net = choices.net(price)
    if not rows.any():  # a program needs at least one group
        rows[np.ptp(np.partition(net, -2, axis=0)[-2:], axis=0).argmin()] = True
    choice, every = net.argmax(axis=0), np.arange(net.shape[1])
    part = choices.use[:, choice, every]  # t,g
    for _ in range(MOST_ROUNDS):
        left = q.capacity - part[:, ~rows] @ q.gpus[~rows]
        divided = None if left.min() < 0 else solve_division(_only(q, rows, left))
        if divided is None:
            return None
        net = choices.net(divided.price)
        wrong = (net.max(axis=0) > net[choice, every] + SURE) & ~rows
        if not wrong.any():
            part[:, rows] = divided.part
            return part
        rows |= wrong
    return None


def _only(q: Program, rows: BoolArray, capacity: FloatArray) -> Program:
    return Program(
        q.rate[:, rows], q.gpus[rows], capacity, q.floor[rows], q.rise[rows], q.widen, q.gain[:, rows], q.level
    )
