"""Jobs placed on nodes, each in one of several configurations, solved in two stages.

    max  sum_ic v_ic X_ic    s.t.  sum_c X_ic <= 1                every job i
                                   sum_ic X_ic a_icn <= free_n    every node n,     X in {0, 1}

A configuration c is a spot: a_icn GPUs on node n. Solved directly, this program takes minutes at 512 GPUs, mostly because
equal nodes are interchangeable. Stage 1 counts pieces in groups of equal nodes; its linear program has a nearly whole
solution, which is packed onto real nodes, large pieces first. Stage 2 solves the program above for the leftovers, and
again together with the jobs on the emptiest nodes if the bound of the linear program shows that this could pay (which
happens on a few nodes, where one gang more or less makes a difference).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.numerics.one_choice import ChoiceProgram, choose
from fairlead.numerics.solve import Limit, columns_from_entries
from fairlead.numerics.spots import GAP, GREEDY, ONE, SpotChoices, SpotPlan, near

CUTS = (2, 3, 4)  # q of the rows that limit how pieces fill a node
STAGE_1 = Limit(iterations=200_000)
WIDEST_GAP = 0.1  # of the value that stage 2 decides over: where that is small, a coarse solution is enough
NEAR = 0.99  # of the bound: from here on no placed job is reconsidered
AGAIN = 200  # jobs x nodes that stage 2 can reconsider quickly


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Nodes that are interchangeable for every job: of one kind, with the same number of idle GPUs."""

    of: IntArray  # n  group; -1: no idle GPUs
    idle: IntArray  # g  GPUs on each node
    kind: IntArray  # g
    nodes: tuple[tuple[int, ...], ...]  # g  in the order in which they are filled


def group_nodes(kind: IntArray, free: IntArray, fill_order: IntArray) -> Groups:
    """Nodes (n) grouped by kind and idle GPUs; `fill_order` lists all nodes in the order in which they are filled."""
    some = np.flatnonzero(free > 0)
    keys, index = np.unique(np.column_stack((kind[some], free[some])), axis=0, return_inverse=True)
    of = np.full(len(free), -1, dtype=np.int64)
    of[some] = index.reshape(-1)
    members: list[list[int]] = [[] for _ in keys]
    for node in fill_order.tolist():
        if of[node] >= 0:
            members[of[node]].append(node)
    return Groups(of, keys[:, 1], keys[:, 0], tuple(map(tuple, members)))


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """What jobs may take in stage 1: `gpus` on nodes of a `group`, filled one after the other, or exactly one spot."""

    job: IntArray  # c
    value: FloatArray  # c
    group: IntArray  # c
    gpus: IntArray  # c
    spot_job: IntArray  # s
    spot_value: FloatArray  # s
    spots: tuple[Spot, ...]  # s


# residual(jobs that stage 1 left open, jobs that it placed, free) -> spots for the former and for other waiting jobs
Residual = Callable[[list[int], Container[int], IntArray], SpotChoices]


def two_stage(
    choices: Choices,
    groups: Groups,
    free: IntArray,
    order: Sequence[int],
    residual: Residual,
    present: Mapping[int, Spot] | None = None,
    solve_s: float | None = None,
    *,
    alike: bool = True,
) -> SpotPlan:
    """The plan of both stages: groups, packing, then the leftovers.

    `order` is the queue. It decides if a solve gives up or takes longer than `solve_s`; running jobs then keep their
    `present` spots. Values of stage 2 must be on the scale of stage 1, so that a job that gains little there does not
    look as good as one that gains much. `alike`: the nodes of a group are equal for every job, so that a job which could
    as well stay does. If they are not, the caller exchanges jobs inside groups afterwards.
    """
    x = _relax(choices, groups, replace(STAGE_1, seconds=solve_s), alike=alike)
    room = _NodeRoom(groups, free)
    if x is None:
        value = _greedy(choices, groups, room, order, present or {})
        return SpotPlan(room.spots, value, np.inf, GREEDY)
    columns = len(choices.job)
    on_groups, on_spots = x[:columns], x[columns:]
    bound = float(on_groups @ choices.value + on_spots @ choices.spot_value)
    worth = _pack(choices, room, np.flatnonzero(on_groups > ONE), np.flatnonzero(on_spots > ONE))
    wanted = {*choices.job[on_groups > 1.0 - ONE].tolist(), *choices.spot_job[on_spots > 1.0 - ONE].tolist()}
    open_jobs = {i for i in wanted if i not in room.spots}
    spots, value, solver = room.spots, sum(worth.values()), "optimal"
    for again in _released(room, open_jobs):
        if again and value >= NEAR * bound:
            break
        left = np.array(room.free, dtype=np.int64)
        for i in again:
            for node, gpus in room.spots[i]:
                left[node] += gpus
        kept = {i: spot for i, spot in room.spots.items() if i not in again}
        fixed = sum(worth[i] for i in kept)
        gap = min(GAP * bound / max(bound - fixed, GAP * bound, 1e-300), WIDEST_GAP)
        rest = near(residual([i for i in order if i in open_jobs or i in again], kept, left), left, gap, solve_s)
        if fixed + rest.value > value:
            spots, value, solver = {**kept, **rest.spots}, fixed + rest.value, rest.solver
    return SpotPlan(spots, value, bound, solver)


def _released(room: _NodeRoom, open_jobs: set[int]) -> list[set[int]]:
    """The jobs that stage 2 reconsiders: first none, then as many as it can afford, from the nodes with the most room.

    If a node is left half full, the reason is often the jobs that are already on it.
    """
    if not any(room.free):
        return []
    on_node: dict[int, list[int]] = {}
    for i, spot in room.spots.items():
        for node, _ in spot:
            on_node.setdefault(node, []).append(i)
    emptiest = sorted(range(len(room.free)), key=lambda node: (-room.free[node], node))
    nodes: set[int] = set()
    again: set[int] = set()
    for node in emptiest:
        more = [i for i in on_node.get(node, ()) if i not in again]
        if (len(open_jobs) + len(again) + len(more)) * (len(nodes) + 1) > AGAIN:
            break
        nodes.add(node)
        again.update(more)
    again = {i for i in again if all(node in nodes for node, _ in room.spots[i])}
    return [set(), again] if again else [set()]


def _relax(choices: Choices, groups: Groups, limit: Limit, *, alike: bool = True) -> FloatArray | None:
    """The fractional solution of stage 1: columns of groups, then of spots. None if the solver gave up.

        sum of sizes <= n_g f_g,    sum (ceil(q size / f_g) - 1) <= n_g (q - 1)   for q = 2, 3, 4      every group g

    for pieces of a size up to f_g, the idle GPUs of a node: ceil(q a) - 1 is super-additive, so the pieces of one node
    add up to q - 1 at most. A configuration over several nodes is whole nodes and a remainder.
    """
    value = np.concatenate((choices.value, choices.spot_value))
    if not len(value):
        return np.empty(0)
    columns, kinds = len(choices.job), len(CUTS) + 1
    idle = groups.idle[choices.group]  # c
    whole, rest = choices.gpus // idle, choices.gpus % idle
    column, row, amount = [np.arange(columns)], [kinds * choices.group], [choices.gpus]
    for at, q in enumerate(CUTS, 1):
        column.append(np.arange(columns))
        row.append(kinds * choices.group + at)
        amount.append(whole * (q - 1) + np.maximum(-(-q * rest // idle) - 1, 0))
    pieces = [(columns + s, node, gpus) for s, spot in enumerate(choices.spots) for node, gpus in spot]
    of_column, node, gpus = np.array(pieces, dtype=np.int64).reshape(-1, 3).T
    group = groups.of[node]
    for at, q in enumerate((1, *CUTS)):
        column.append(of_column)
        row.append(kinds * group + at)
        amount.append(gpus if q == 1 else -(-q * gpus // groups.idle[group]) - 1)
    _, job = np.unique(np.concatenate((choices.job, choices.spot_job)), return_inverse=True)
    count = np.array([len(nodes) for nodes in groups.nodes])
    high = count[:, None] * np.column_stack((groups.idle, *(np.full(len(count), q - 1) for q in CUTS)))  # g,q
    start, index, entries = _summed(np.concatenate(row), np.concatenate(column), np.concatenate(amount), len(value))
    program = ChoiceProgram(
        job=job.reshape(-1),
        cost=-value / value.max(),
        start=start,
        row=index,
        amount=entries,
        low=np.full(high.size, -np.inf),
        high=high.ravel().astype(np.float64),
    )
    offered = np.ones(len(value), dtype=np.bool_)
    if alike:
        offered[:columns] = ~_as_good_as_a_spot(choices, groups)
    outcome = choose(program.part(np.flatnonzero(offered), program.low, program.high), limit)
    if outcome is None:
        return None
    x = np.zeros(len(value))
    x[offered] = outcome.x
    return x


def _as_good_as_a_spot(choices: Choices, groups: Groups) -> BoolArray:
    """c  choices to which the job's spot on one node of the group is equal, such as the spot that it holds.

    Only the spot is offered to the solver, so that no job moves between two places that are worth the same.
    """
    at = np.array([s for s, spot in enumerate(choices.spots) if len(spot) == 1], dtype=np.int64)
    node, gpus = np.array([choices.spots[s][0] for s in at.tolist()], dtype=np.int64).reshape(-1, 2).T
    most = max(int(gpus.max(initial=0)), int(choices.gpus.max(initial=0))) + 1
    spot_key = (choices.spot_job[at] * len(groups.idle) + groups.of[node]) * most + gpus
    best: dict[int, float] = {}
    for key, value in zip(spot_key.tolist(), choices.spot_value[at].tolist(), strict=True):
        best[key] = max(value, best.get(key, -np.inf))
    keys = (choices.job * len(groups.idle) + choices.group) * most + choices.gpus
    same = np.flatnonzero(np.isin(keys, spot_key))
    good = np.zeros(len(keys), dtype=np.bool_)
    good[same] = [
        best[key] >= value * ONE for key, value in zip(keys[same].tolist(), choices.value[same].tolist(), strict=True)
    ]
    return good


def _summed(row: IntArray, column: IntArray, amount: IntArray, columns: int) -> tuple[IntArray, IntArray, FloatArray]:
    """The column-wise form; entries for the same place are added, zeros left out."""
    row, column, amount = row[amount != 0], column[amount != 0], amount[amount != 0]
    rows = int(row.max(initial=0)) + 1
    place, index = np.unique(column * rows + row, return_inverse=True)
    total: FloatArray = np.bincount(index.reshape(-1), amount.astype(np.float64), len(place)).astype(np.float64)
    return columns_from_entries(place % rows, place // rows, total, columns)


class _NodeRoom:
    """Free GPUs on real nodes, and the jobs that have been placed there."""

    def __init__(self, groups: Groups, free: IntArray) -> None:
        self.free: list[int] = free.tolist()
        self.spots: dict[int, Spot] = {}
        self._groups = groups

    def put(self, job: int, spot: Spot) -> bool:
        if not spot or job in self.spots or any(self.free[node] < gpus for node, gpus in spot):
            return False
        for node, gpus in spot:
            self.free[node] -= gpus
        self.spots[job] = spot
        return True

    def find(self, group: int, gpus: int) -> Spot:
        """The fullest node that fits; for several nodes untouched neighbours, if there are any, and a remainder."""
        idle, nodes = int(self._groups.idle[group]), self._groups.nodes[group]
        if gpus <= idle:
            node = self._fullest(nodes, gpus)
            return NOWHERE if node < 0 else ((node, gpus),)
        whole, rest = divmod(gpus, idle)
        untouched = sorted(node for node in nodes if self.free[node] == idle)
        if len(untouched) < whole:
            return NOWHERE
        chosen = _neighbours(untouched, whole)
        if not rest:
            return tuple((node, idle) for node in chosen)
        beside = [n for n in (chosen[-1] + 1, chosen[0] - 1) if n in nodes and self.free[n] >= rest]
        last = beside[0] if beside else self._fullest([n for n in nodes if n not in chosen], rest)
        return NOWHERE if last < 0 else tuple(sorted((*((node, idle) for node in chosen), (last, rest))))

    def _fullest(self, nodes: Sequence[int], gpus: int) -> int:
        best, least = -1, 0
        for node in nodes:
            left = self.free[node]
            if left >= gpus and (best < 0 or left < least):
                best, least = node, left
        return best


def _neighbours(nodes: list[int], count: int) -> list[int]:
    """`count` nodes with consecutive numbers, or else the first `count`."""
    for first in range(len(nodes) - count + 1):
        if nodes[first + count - 1] - nodes[first] == count - 1:
            return nodes[first : first + count]
    return nodes[:count]


def _pack(choices: Choices, room: _NodeRoom, on_groups: IntArray, on_spots: IntArray) -> dict[int, float]:
    """Place jobs with a spot of their own, then large before small, then valuable ones. Job -> value, for those that fit."""
    worth: dict[int, float] = {}
    for s in on_spots.tolist():
        if room.put(int(choices.spot_job[s]), choices.spots[s]):
            worth[int(choices.spot_job[s])] = float(choices.spot_value[s])
    largest_first = np.lexsort((choices.job[on_groups], -choices.value[on_groups], -choices.gpus[on_groups]))
    for c in on_groups[largest_first].tolist():
        if room.put(int(choices.job[c]), room.find(int(choices.group[c]), int(choices.gpus[c]))):
            worth[int(choices.job[c])] = float(choices.value[c])
    return worth


def _greedy(
    choices: Choices, groups: Groups, room: _NodeRoom, order: Sequence[int], present: Mapping[int, Spot]
) -> float:
    """In queue order each job stays where it is, or takes the best of its choices that fits."""
    value, columns = 0.0, len(choices.job)
    worth = np.concatenate((choices.value, choices.spot_value))
    job = np.concatenate((choices.job, choices.spot_job))
    by_job: dict[int, list[int]] = {}
    for c in np.argsort(-worth, kind="stable").tolist():
        by_job.setdefault(int(job[c]), []).append(c)
    for s, i in enumerate(choices.spot_job.tolist()):
        if choices.spots[s] == present.get(i):
            by_job[i].insert(0, columns + s)
    for i in order:
        for c in by_job.get(i, ()):
            on_group = c < columns
            spot = room.find(int(choices.group[c]), int(choices.gpus[c])) if on_group else choices.spots[c - columns]
            if room.put(i, spot):
                value += float(worth[c])
                break
    return value
