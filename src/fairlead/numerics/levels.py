"""The highest level to which all jobs can be raised at once, then the largest total: for thousands of distinct jobs.

The speed of a job is a fraction of its full speed, which it has if its whole gang runs on its fastest type all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.numerics.interior import Division, Program, solve_division
from fairlead.numerics.prices import largest_total

SLACK = 1e-7  # the part by which floors are lowered, so that the feasible region has an interior
SHARE_GRID = 9  # decimals of a share
CLOSE = 1e-8  # accuracy of a level that is computed by Newton steps
MOST_STEPS = 60
BACK = 2.0  # with curved floors a step down may go too far; it divides the level by at most BACK times theta
USED_UP = 1e-6  # of a type or of full speed: less than this counts as nothing
MOST_STOPS = 256  # stops of jobs at their top speed to look ahead before a program checks whether there are enough GPUs
BINDS = 1e-3  # floors that cost more than this part of the most expensive floor certainly bind

# level -> floors g of the speeds, and their growth g with the level; neither falls as the level rises
Need = Callable[[float], tuple[FloatArray, FloatArray]]

# groups that have stopped (g) -> weights of all groups (g); the weights of stopped groups do not count
Weigh = Callable[[BoolArray], FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class Gangs:
    """Groups of equal jobs that compete for GPUs, without the groups that can run nowhere."""

    alive: BoolArray  # which of all groups are included
    rate: FloatArray  # t,g  relative to the group's fastest type
    gpus: FloatArray  # g  of all its gangs
    width: FloatArray  # g
    capacity: FloatArray  # t

    @classmethod
    def of(
        cls, rate: FloatArray, width: IntArray, count: IntArray | FloatArray, capacity: IntArray | FloatArray
    ) -> Gangs:
        """The gangs for rates (g,t); types without GPUs are ignored."""
        usable = np.where(np.asarray(capacity) > 0, rate, 0.0)
        top = usable.max(axis=1, initial=0.0)
        alive = top > 0
        relative = np.ascontiguousarray((usable[alive] / top[alive, None]).T)
        gangs = width[alive].astype(np.float64)
        return cls(alive, relative, count[alive] * gangs, gangs, np.asarray(capacity, dtype=np.float64))

    def shares(self, part: FloatArray) -> FloatArray:
        """g,t  GPUs of one job, zero for groups that run nowhere. Rounding exceeds no type and no gang."""
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
    floor: FloatArray  # g  speeds that all groups have at that level
    part: FloatArray  # t,g  part of its time that a job spends on each type
    price: FloatArray  # g  of the group's floor, the highest is 1; almost 0 if the group could have more
    type_price: FloatArray  # t  of all GPUs of the type, the highest is 1; almost 0 if some are left


def raise_in_step(gangs: Gangs, rise: FloatArray) -> Raised | None:
    """The largest z such that every group g has a speed of rise_g z; None if the solver gave up."""
    none = np.zeros_like(gangs.rate)
    no_floor, no_more = np.zeros_like(rise), np.zeros_like(gangs.capacity)
    division = solve_division(Program(gangs.rate, gangs.gpus, gangs.capacity, no_floor, rise, no_more, none, 1.0))
    if division is None:
        return None
    types = _relative(division.price * gangs.capacity)
    return Raised(division.level, rise * division.level, division.part, _relative(division.floor_price), types)


def raise_level(
    gangs: Gangs, need: Need, most: float, start: float | None = None, free: BoolArray | None = None
) -> Raised | None:
    """The largest level up to `most` whose floors can all be met; None if the solver gave up.

    Floors are at most 1 at that level. theta(level) is the smallest part of the `free` types (t; by default all of them)
    that meets the floors; it is convex where the floors are. Newton's method on theta = 1, with the slope from the
    prices, approaches the solution from above. The search keeps points on both sides and bisects if a step leaves them.
    """
    low, high, level = 0.0, np.inf, most if start is None else start
    free = gangs.capacity > 0 if free is None else free
    for _ in range(MOST_STEPS):
        floor, growth = need(level)
        division = smallest_part(gangs, floor, free)
        if division is None and _fits_at_once(gangs, floor, free) and np.isfinite(high):
            low, level = level, (level + high) / 2  # the solver fails on floors close to nothing
            continue
        if division is None:
            return None
        theta = division.level
        if abs(theta - 1) < CLOSE or (theta < 1 and level >= most) or high - low < CLOSE * high:
            prices = _relative(division.floor_price), _relative(division.price * gangs.capacity)
            return Raised(level, floor, division.part, *(price * (theta > 1 - CLOSE) for price in prices))
        low, high = (level, high) if theta < 1 else (low, level)
        whole = float(np.where(free, division.price * gangs.capacity, 0.0).sum())  # what all free types cost
        slope = float(gangs.gpus @ (division.floor_price * growth)) / max(whole, 1e-300)
        likely, level = level + (1 - theta) / max(slope, 1e-300), level / (BACK * theta)
        level = max(level, likely) if theta > 1 else likely
        if not low < level < min(high, most):
            level = most if not np.isfinite(high) else (low + high) / 2
    return None


def _fits_at_once(gangs: Gangs, floor: FloatArray, free: BoolArray) -> bool:
    """Whether the free types meet the floors if every group only uses the one on which it is fastest."""
    rate = np.where(free[:, None], gangs.rate, 0.0)  # t,g
    fastest = rate.argmax(axis=0)
    speed = rate[fastest, np.arange(len(floor))]
    if (speed < floor).any():
        return False
    used = np.bincount(
        fastest, gangs.gpus * np.divide(floor, speed, out=np.zeros_like(floor), where=speed > 0), len(rate)
    )
    return bool((used < gangs.capacity)[free].all())


def smallest_part(gangs: Gangs, floor: FloatArray, free: BoolArray) -> Division | None:
    """The division that meets all floors with the smallest part of every free type, which is its level.

    The program leaves out groups that need not run, and groups that must be at full speed and reach it on one type only:
    they have no choice, so the feasible region would have no interior.
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
    # A level is accurate to CLOSE, so its floors may take that much more of the types that have run out since.
    fixed, scaled = np.where(free, 0.0, gangs.capacity * (1 + SLACK)) - used, np.where(free, gangs.capacity, 0.0)
    none, no_rise = np.zeros_like(rate), np.zeros_like(gpus)
    division = solve_division(Program(rate, gpus, fixed, floor[open_], no_rise, scaled, none, -1.0))
    if division is None:
        return None
    part[:, open_], price[open_] = division.part, division.floor_price
    return replace(division, part=part, floor_price=price)


def raise_total(gangs: Gangs, raised: Raised, value: FloatArray) -> FloatArray:
    """t,g  parts with the largest sum of value_g x speed_g in which every group keeps its floor.

    If every floor binds, all totals are the same. If the solver gives up, the parts are those of the level.
    """
    if raised.price.min(initial=1.0) > BINDS:
        return raised.part
    part = _total_above(gangs, raised.floor, value)
    if part is not None:
        return part
    gain = gangs.rate * (value / gangs.width)
    floor, no_rise, no_more = raised.floor * (1 - SLACK), np.zeros_like(gangs.gpus), np.zeros_like(gangs.capacity)
    division = solve_division(Program(gangs.rate, gangs.gpus, gangs.capacity, floor, no_rise, no_more, gain, -1.0))
    return raised.part if division is None else division.part


def raise_in_step_then_total(gangs: Gangs, rise: FloatArray, value: FloatArray) -> tuple[float, FloatArray] | None:
    """The level of `raise_in_step` and the parts (t,g) of `raise_total` at that level; None if the solver gave up.

    The level is at most the one at which the first group reaches full speed. If all groups can be raised to it, one
    program is enough.
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
    """t,g  the max-min parts: no level can be raised without lowering one that is not higher. None if the solver gave up.

    All jobs rise together, job g by weight_g unit_g of its full speed for each step of the level, until some stop:
    because types have run out, or because they are at their full speed. These keep their speed, and `weigh` returns the
    weights of the others, from the set of jobs that have stopped. With `inherit`, the weight of a job that stops passes
    to others. Which jobs reach full speed is known without a program, so a program only decides where a type runs out.
    """
    part = np.zeros_like(gangs.rate)
    floor, stopped = np.zeros_like(unit), np.zeros(len(unit), np.bool_)
    free = gangs.capacity > 0  # t  has not run out
    while not stopped.all():
        # Groups that still rise do not use the types that have run out: otherwise those would have stopped them.
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
        # Floors of stopped groups and types that have run out can cost more than all others by any factor.
        binds = _relative(np.where(stopped, 0.0, raised.price)) > BINDS
        free &= _relative(np.where(free, raised.type_price, 0.0)) <= BINDS
        stopped |= binds | (floor >= (1 - USED_UP) * top)
        if before == (np.count_nonzero(stopped), np.count_nonzero(free)):
            break  # only noise is left
    return part


@dataclass(frozen=True, slots=True, eq=False)
class _Rising:
    """The speeds that all groups have, and their further growth: `rise` for each step, up to `top`."""

    gangs: Gangs
    floor: FloatArray  # g
    rise: FloatArray  # g  0 for groups that have stopped
    top: FloatArray  # g
    free: BoolArray  # t  types that have not run out


def _raise_as_one(of: _Rising) -> Raised | None:
    """The highest common step from the floors of all groups that rise, each at most to its top."""

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
    """The same if, whenever a group reaches its top, the others continue with `rise_of` (groups that have stopped).

    Floors are linear between two stops. These pieces, up to `MOST_STOPS` of them, form one path along which the level is
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
