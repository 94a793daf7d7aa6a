"""The part of the fold in which jobs take GPUs of nodes and return them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import IntArray
from fairlead.model.outcomes import Reason
from fairlead.model.view import MIXED_TYPES, NO_TYPE
from fairlead.numerics import kernel
from fairlead.rounds.departing import end_departures, refund_restarts
from fairlead.rounds.speeds import forget_spread, note_spread
from fairlead.rounds.waiting import set_reason

if TYPE_CHECKING:
    from fairlead.rounds.state import State


def occupy(state: State, jobs: IntArray, spots: tuple[Spot, ...], time_s: float) -> None:
    if not jobs.size:
        return
    fill = _occupy if kernel.kernel is None else _occupy_compiled
    gpus, nodes = fill(state, jobs, spots, time_s)
    if nodes > 1:
        note_spread(state, jobs.tolist())
    state.busy_gpus += gpus
    end_departures(state, jobs)
    if state.reason[jobs].any():
        set_reason(state, jobs, Reason.UNDECIDED, time_s)
    state.running += len(jobs)
    state.nodes.take(spots)


def _occupy_compiled(state: State, jobs: IntArray, spots: tuple[Spot, ...], time_s: float) -> tuple[int, int]:
    """Like `_occupy`, in one call."""
    gpus, nodes = kernel.kernel.occupy(
        jobs,
        spots,
        state.spots,
        state.last_spots,
        state.cluster.node_type,
        time_s,
        state.first_start_s,
        state.restarts,
        state.migrations,
        state.leases,
        state.held_type,
        state.held_gpus,
        state.held_nodes,
        state.since_s,
        MIXED_TYPES,
    )
    return gpus, nodes


def _occupy(state: State, jobs: IntArray, spots: tuple[Spot, ...], time_s: float) -> tuple[int, int]:
    """Change the columns of the jobs. Returns the GPUs of all spots and the nodes of the widest."""
    types: list[int] = []
    totals: list[int] = []
    moved: list[bool] = []
    for j, spot in zip(jobs.tolist(), spots, strict=True):
        total, type_ = 0, state.nodes.types[spot[0][0]]
        for node, count in spot:
            total += count
            if state.nodes.types[node] != type_:
                type_ = MIXED_TYPES
        types.append(type_)
        totals.append(total)
        moved.append(spot != state.last_spots[j])
        state.spots[j] = state.last_spots[j] = spot
    ran = ~np.isnan(state.first_start_s[jobs])  # a job that was refused before it ever ran restores nothing
    state.restarts[jobs] += ran
    state.migrations[jobs] += ran & moved
    state.leases[jobs] += 1
    state.held_type[jobs] = types
    state.held_gpus[jobs] = totals
    state.held_nodes[jobs] = nodes = [len(spot) for spot in spots]
    state.since_s[jobs] = time_s
    return sum(totals), max(nodes)


def release(state: State, jobs: IntArray, time_s: float) -> None:
    if len(jobs) == 1:
        _release_one(state, int(jobs[0]), time_s)
        return
    held = jobs[state.held_gpus[jobs] > 0]
    if not held.size:
        return
    gpus, held_s = state.held_gpus[held], time_s - state.since_s[held]
    state.attained_gpu_s[held] += gpus * held_s
    state.run_s[held] += held_s
    refund_restarts(state, held, time_s)
    state.since_s[held] = math.inf
    state.busy_gpus -= int(gpus.sum())
    state.running -= len(held)
    state.held_gpus[held] = 0
    state.held_nodes[held] = 0
    state.held_type[held] = NO_TYPE
    leaving: list[int] = held.tolist()
    state.nodes.give_back([state.spots[j] for j in leaving])
    for j in leaving:
        state.spots[j] = NOWHERE
        if state.spread_rate:
            forget_spread(state, j)


def _release_one(state: State, j: int, time_s: float) -> None:
    """The same for one job, as when it ends: most releases are of one, and columns of one are slow."""
    gpus, held_s = int(state.held_gpus[j]), time_s - float(state.since_s[j])
    if not gpus:
        return
    state.attained_gpu_s[j] += gpus * held_s
    state.run_s[j] += held_s
    if state.resume_s[j] > time_s:
        refund_restarts(state, np.array([j]), time_s)
    state.since_s[j] = math.inf
    state.busy_gpus -= gpus
    state.running -= 1
    state.held_gpus[j] = state.held_nodes[j] = 0
    state.held_type[j] = NO_TYPE
    state.nodes.give_back([state.spots[j]])
    state.spots[j] = NOWHERE
    if state.spread_rate:
        forget_spread(state, j)
