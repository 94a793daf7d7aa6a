"""How high everybody can be raised at once, for thousands of unlike jobs on typed GPUs; then the largest total.

The speed of a job is the part of its full speed, that of its whole gang on its fastest type all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.numerics.interior import Division, Program, solve_division
from fairlead.numerics.prices import largest_total

SLACK = 1e-7  # floors are asked for but for this part of them, so that there is room inside
SHARE_GRID = 9  # decimals of a share
CLOSE = 1e-8  # of a level that is found by steps
MOST_STEPS = 60
BACK = 2.0  # where floors are bent a step down may lead too far: not below this part of what straight ones would need
USED_UP = 1e-6  # of a type or of full speed: what is less is nothing
MOST_STOPS = 256  # of jobs at their tops that are looked ahead before a program says whether there are GPUs for it
BINDS = 1e-3  # floors dearer than this part of the dearest bind for sure

# level -> floors g of the speeds and their growth g with the level; both rise with it
Need = Callable[[float], tuple[FloatArray, FloatArray]]

# who has stopped (g) -> weights g of all; those who have stopped do not count
Weigh = Callable[[BoolArray], FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class Gangs:
    """Groups of equal jobs that compete for GPUs, without those that can run nowhere."""

    alive: BoolArray  # of all groups
    rate: FloatArray  # t,g  relative to the group's fastest type
    gpus: FloatArray  # g  of all its gangs
    width: FloatArray  # g
    capacity: FloatArray  # t

    @classmethod
    def of(
        cls, rate: FloatArray, width: IntArray, count: IntArray | FloatArray, capacity: IntArray | FloatArray
    ) -> Gangs:
        """From rates g,t; a type without GPUs is no type."""
        usable = np.where(np.asarray(capacity) > 0, rate, 0.0)
        top = usable.max(axis=1, initial=0.0)
        alive = top > 0
        relative = np.ascontiguousarray((usable[alive] / top[alive, None]).T)
        gangs = width[alive].astype(np.float64)
        return cls(alive, relative, count[alive] * gangs, gangs, np.asarray(capacity, dtype=np.float64))

    def shares(self, part: FloatArray) -> FloatArray:
        """g,t  GPUs of one job, zero for those that run nowhere. No type and no gang is exceeded by rounding."""
        part = np.maximum(part, 0.0)
        part = part / np.maximum(part.sum(axis=0), 1.0)
        used = part @ self.gpus
        part = part * np.minimum(1.0, self.capacity / np.maximum(used, 1e-300))[:, None]
        shares = np.zeros((len(self.alive), len(self.capacity)))
        shares[self.alive] = np.round((part * self.width).T, SHARE_GRID)
        return shares


@dataclass(frozen=True, slots=True, eq=False)
class Raised:
    level: float
    floor: FloatArray  # g  speeds that all have at that level
    part: FloatArray  # t,g  of its time that a job spends on each type
    price: FloatArray  # g  of its floor, the dearest is 1; next to nothing where it could have more
    type_price: FloatArray  # t  of all its GPUs, the dearest is 1; next to nothing where some are left


def raise_in_step(gangs: Gangs, rise: FloatArray) -> Raised | None:
    """The largest z with speeds of rise_g z for all; None where the solver gave up."""
    none = np.zeros_like(gangs.rate)
    no_floor, no_more = np.zeros_like(rise), np.zeros_like(gangs.capacity)
    found = solve_division(Program(gangs.rate, gangs.gpus, gangs.capacity, no_floor, rise, no_more, none, 1.0))
    if found is None:
        return None
    types = _relative(found.price * gangs.capacity)
    return Raised(found.level, rise * found.level, found.part, _relative(found.floor_price), types)


def raise_level(
    gangs: Gangs, need: Need, most: float, start: float | None = None, free: BoolArray | None = None
) -> Raised | None:
    """The largest level up to `most` whose floors can all be met. Floors are at most 1 there; None where the solver gave up.

    theta(level) is the smallest part of the `free` types (t; all) that meets the floors, convex where they are. Newton's method on
    theta = 1, with its slope from the prices, comes down to the answer from above. Points on both sides are kept; a
    step that leaves them is halved.
    """
    low, high, level = 0.0, np.inf, most if start is None else start
    free = gangs.capacity > 0 if free is None else free
    for _ in range(MOST_STEPS):
        floor, growth = need(level)
        found = smallest_part(gangs, floor, free)
        if found is None:
            return None
        theta = found.level
        if abs(theta - 1) < CLOSE or (theta < 1 and level >= most) or high - low < CLOSE * high:
            prices = _relative(found.floor_price), _relative(found.price * gangs.capacity)
            return Raised(level, floor, found.part, *(price * (theta > 1 - CLOSE) for price in prices))
        low, high = (level, high) if theta < 1 else (low, level)
        whole = float(np.where(free, found.price * gangs.capacity, 0.0).sum())  # what all free types cost
        slope = float(gangs.gpus @ (found.floor_price * growth)) / max(whole, 1e-300)
        likely, level = level + (1 - theta) / max(slope, 1e-300), level / (BACK * theta)
        level = max(level, likely) if theta > 1 else likely
        if not low < level < min(high, most):
            level = most if not np.isfinite(high) else (low + high) / 2
    return None


def smallest_part(gangs: Gangs, floor: FloatArray, free: BoolArray) -> Division | None:
    """The smallest part of every free type, as the level of the division, with which all have their floors.

    Who need not run has no choice, nor who must be at full speed and is so on one type only: it would leave the method no
    room inside. They are left out of the program.
    """
    floor = floor * (1 - SLACK)
    fast = gangs.rate >= 1 - USED_UP  # t,g
    full = (floor >= 1 - USED_UP) & (np.count_nonzero(fast, axis=0) == 1)
    part, price = np.where(fast & full, floor, 0.0), np.zeros_like(floor)
    used = part @ gangs.gpus  # t
    open_ = (floor > 0) & ~full
    if not open_.any():
        level = float((used[free] / gangs.capacity[free]).max(initial=0.0))
        return Division(part, level, np.zeros_like(gangs.capacity), price, 0)
    rate, gpus = gangs.rate[:, open_], gangs.gpus[open_]
    # A level is found to within CLOSE: what its floors take of types that have run out since may be more by as much.
    fixed, scaled = np.where(free, 0.0, gangs.capacity * (1 + SLACK)) - used, np.where(free, gangs.capacity, 0.0)
    none, no_rise = np.zeros_like(rate), np.zeros_like(gpus)
    found = solve_division(Program(rate, gpus, fixed, floor[open_], no_rise, scaled, none, -1.0))
    if found is None:
        return None
    part[:, open_], price[open_] = found.part, found.floor_price
    return replace(found, part=part, floor_price=price)


def raise_total(gangs: Gangs, raised: Raised, value: FloatArray) -> FloatArray:
    """t,g  parts with the largest sum of value_g x speed_g while everybody keeps its floor.

    Where every floor binds all totals are the same. Where the solver gives up, the parts are those of the level.
    """
    if raised.price.min(initial=1.0) > BINDS:
        return raised.part
    part = _total_above(gangs, raised.floor, value)
    if part is not None:
        return part
    gain = gangs.rate * (value / gangs.width)
    floor, no_rise, no_more = raised.floor * (1 - SLACK), np.zeros_like(gangs.gpus), np.zeros_like(gangs.capacity)
    found = solve_division(Program(gangs.rate, gangs.gpus, gangs.capacity, floor, no_rise, no_more, gain, -1.0))
    return raised.part if found is None else found.part


def raise_in_step_then_total(gangs: Gangs, rise: FloatArray, value: FloatArray) -> tuple[float, FloatArray] | None:
    """Both: the level of `raise_in_step` and the parts (t,g) of `raise_total` at it; None where the solver gave up.

    The level is at most where the first is at full speed. If all can be raised to there, one step does.
    """
    most = 1.0 / float(rise.max())
    part = _total_above(gangs, rise * most, value)
    if part is not None:
        return most, part
    raised = raise_in_step(gangs, rise)
    return None if raised is None else (raised.level, raise_total(gangs, raised, value))


def _total_above(gangs: Gangs, floor: FloatArray, value: FloatArray) -> FloatArray | None:
    return largest_total(gangs.rate, gangs.gpus, gangs.capacity, floor * (1 - SLACK), value / gangs.width)


def fill_water(gangs: Gangs, unit: FloatArray, weigh: Weigh, *, inherit: bool = False) -> FloatArray | None:
    """t,g  parts at which nobody's level can be raised but at the cost of somebody's who has no more.

    All rise together, job g by weight_g unit_g of its full speed for each step of the level, until some are stopped: by
    types that have run out, or because they are as fast as can be. These keep their speed; `weigh` says, from who has
    stopped, how the others go on. With `inherit` the weight of one that stops counts for others from there on: who is as fast
    as can be is known without a program, so it only has to say where a type runs out. None where the solver gave up.
    """
    part = np.zeros_like(gangs.rate)
    floor, stopped = np.zeros_like(unit), np.zeros(len(unit), np.bool_)
    free = gangs.capacity > 0  # t  has not run out
    while not stopped.all():
        # Who still rises does without the types that have run out, or it would have been stopped by them.
        inside = replace(gangs, rate=np.where(free[:, None] | stopped, gangs.rate, 0.0))
        top = inside.rate.max(axis=0)
        stopped |= floor >= (1 - USED_UP) * top
        rise = np.where(stopped, 0.0, weigh(stopped) * unit)
        if not rise.any():
            break
        rising = _Rising(inside, floor, rise, top, free)
        raised = _raise_by_heirs(rising, stopped, lambda at: weigh(at) * unit) if inherit else _raise_as_one(rising)
        if raised is None:
            return None
        part, floor = raised.part, raised.floor
        before = np.count_nonzero(stopped), np.count_nonzero(free)
        # Floors of those that have stopped, and types that have run out, can be dearer than all others by any factor.
        binds = _relative(np.where(stopped, 0.0, raised.price)) > BINDS
        free &= _relative(np.where(free, raised.type_price, 0.0)) <= BINDS
        stopped |= binds | (floor >= (1 - USED_UP) * top)
        if before == (np.count_nonzero(stopped), np.count_nonzero(free)):
            break  # nothing but noise is left
    return part


@dataclass(frozen=True, slots=True, eq=False)
class _Rising:
    """Speeds that all have, and how they would go on: `rise` for each step, up to `top`."""

    gangs: Gangs
    floor: FloatArray  # g
    rise: FloatArray  # g  0 for those that have stopped
    top: FloatArray  # g
    free: BoolArray  # t  types that have not run out


def _raise_as_one(of: _Rising) -> Raised | None:
    """All that rise go up by the same step from their floors, each at most to its top."""

    def need(step: float) -> tuple[FloatArray, FloatArray]:
        raised = of.floor + of.rise * step
        return np.where(rising, np.minimum(raised, of.top), of.floor), np.where(raised <= of.top, of.rise, 0.0)

    gangs, rising = of.gangs, of.rise > 0
    most = float(((of.top - of.floor)[rising] / of.rise[rising]).max())
    even = gangs.rate.sum(axis=0) / np.maximum((gangs.rate > 0).sum(axis=0), 1)
    need_gpus = float(gangs.gpus[rising] @ (of.rise / np.maximum(even, 1e-300))[rising])
    likely = float(gangs.capacity[of.free].sum()) / need_gpus
    return raise_level(gangs, need, most, min(likely, most), of.free)


def _raise_by_heirs(of: _Rising, stopped: BoolArray, rise_of: Weigh) -> Raised | None:
    """The same, where those that still rise go on by `rise_of` (who has stopped) whenever one is at its top.

    Between two stops floors are straight. All of these pieces, up to `MOST_STOPS`, are one way along which the level is
    raised.
    """
    floor, rise, at = of.floor, of.rise, 0.0
    steps, floors, rises = [at], [floor], [rise]
    while rise.any() and len(steps) <= MOST_STOPS:
        rising = rise > 0
        ahead = float(((of.top - floor)[rising] / rise[rising]).min())
        at, floor = at + ahead, np.where(rising, np.minimum(floor + rise * ahead, of.top), floor)
        stopped = stopped | (floor >= (1 - USED_UP) * of.top)
        rise = np.where(stopped, 0.0, rise_of(stopped))
        steps.append(at)
        floors.append(floor)
        rises.append(rise)

    def need(step: float) -> tuple[FloatArray, FloatArray]:
        piece = min(int(np.searchsorted(steps, step, side="left")), len(steps) - 1) - 1
        return floors[piece] + rises[piece] * (step - steps[piece]), rises[piece]

    return raise_level(of.gangs, need, at, None, of.free)


def _relative(price: FloatArray) -> FloatArray:
    return np.asarray(price / max(float(price.max(initial=0.0)), 1e-300))
