"""The records that bring our folded state to where Slurm really is.

What Slurm decided is a Decision like any other, so that everything that reads a log also reads that of a watched
cluster. It is marked as one that a replay must take as it is. No record is before the state's own time, and each can be
folded after those before it, whatever Slurm shows: first jobs end, then nodes change, then jobs start. True times are in
the rows (`watched`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from fairlead.engines.arrays import one
from fairlead.engines.slurm.watched import CANCELLED, COMPLETED, FORGOTTEN, REQUEUED, WatchedJob
from fairlead.model import events as ev
from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import NO_JOBS
from fairlead.model.decision import Cause, Decision
from fairlead.model.gpus import MEMORY_GIB
from fairlead.model.lifecycle import ENDED, Phase
from fairlead.rates.spot import spot_rate
from fairlead.rounds.records import Record
from fairlead.rounds.state import State

BY_SLURM = "slurm"  # in the place of a solver
_MEMORY_GIB = 16.0  # of a GPU type that is not in our table


@dataclass(frozen=True, slots=True)
class SlurmHardware:
    """A node as `sinfo` shows it: its GPUs, how many of them any job holds, and whether it takes new jobs."""

    gpu: str
    gpus: int
    used: int = 0
    gone: bool = False
    open: bool = True


def catch_up(
    state: State,
    rows: Mapping[str, WatchedJob],
    nodes: Mapping[str, SlurmHardware],
    begun: Mapping[str, float],
    now_s: float,
) -> list[Record]:
    """The next records from the state to what Slurm shows, for jobs that have arrived; none if it is there.

    Once they are folded, a further call returns those that depend on them. `begun` has the start of the run of which a
    job holds the GPUs here, where it is known.
    """
    now_s = max(now_s, state.now_s)
    known = ((j, rows.get(state.specs[j].id)) for j in range(state.jobs))
    ends = [
        record for j, row in known if row is not None for record in _end(state, j, row, begun.get(row.spec.id), now_s)
    ]
    if ends:
        return sorted(ends, key=lambda record: record.time_s)
    cluster = list(_cluster(state, nodes, now_s))
    if cluster:
        return cluster
    spots = dict(_starts(state, rows))
    usable = list(_usable(state, spots, nodes, now_s))
    return [*usable, *_started(state, spots, now_s)]


# ---- jobs that leave their GPUs, or the queue -----------------------------------------------------------------------


def _end(state: State, j: int, row: WatchedJob, begun_s: float | None, now_s: float) -> Iterator[Record]:
    """The end of a job's run, its end, or that Slurm considers it or does no longer."""
    phase = int(state.phase[j])
    if phase in ENDED:
        return
    has_gpus, job = bool(state.held_gpus[j]), one(j)
    samples = state.done_at(job, now_s)
    if row.ended:
        at_s = min(max(row.end_s or now_s, state.now_s), now_s)
        if has_gpus and row.ended == COMPLETED:
            yield ev.Finished(at_s, job, samples)
        elif has_gpus and row.ended not in (CANCELLED, FORGOTTEN):
            yield ev.Failed(at_s, job, row.ended)
        elif has_gpus or not row.runs:
            yield ev.Cancelled(at_s, job)
        elif phase == Phase.HELD:
            yield ev.Released(now_s, job)
    elif has_gpus and _is_another_run(state, j, row, begun_s):
        yield ev.Lost(now_s, job, samples, reason=REQUEUED)
    elif phase == Phase.WAITING and row.held:
        yield ev.Held(now_s, job, samples)
    elif phase == Phase.HELD and not row.held:
        yield ev.Released(now_s, job)


def _is_another_run(state: State, j: int, row: WatchedJob, begun_s: float | None) -> bool:
    """Whether Slurm no longer has the job where we have it."""
    run = row.running
    if run is None or (begun_s is not None and run.start_s != begun_s):
        return True
    return set(run.hosts) != {state.cluster.nodes[node] for node, _ in state.spots[j]}


# ---- nodes ----------------------------------------------------------------------------------------------------------


def _cluster(state: State, nodes: Mapping[str, SlurmHardware], now_s: float) -> Iterator[Record]:
    """Nodes that join, leave or have other GPUs than before. One on which jobs run keeps what it has until they end."""
    cluster = state.cluster
    for n, name in enumerate(cluster.nodes):
        before = int(cluster.node_gpus[n])
        if before and not _same(state, n, nodes.get(name)) and state.nodes.usable[n] == state.nodes.free[n]:
            yield ev.NodeRemoved(now_s, n)
    for name, node in nodes.items():
        known = cluster.nodes.index(name) if name in cluster.nodes else None
        if node.gpus and (known is None or not cluster.node_gpus[known]):
            yield ev.NodeAdded(now_s, name, node.gpu, node.gpus, MEMORY_GIB.get(node.gpu, _MEMORY_GIB))


def _same(state: State, n: int, node: SlurmHardware | None) -> bool:
    cluster = state.cluster
    return node is not None and node.gpus == cluster.node_gpus[n] and node.gpu == cluster.gpu[int(cluster.node_type[n])]


def _usable(
    state: State, starts: Mapping[int, Spot], nodes: Mapping[str, SlurmHardware], now_s: float
) -> Iterator[Record]:
    """Nodes that go down or come up, and GPUs that foreign jobs take or return. Those of our jobs always count as ours."""
    begun = Counter(dict.fromkeys(range(len(state.cluster.nodes)), 0))
    for spot in starts.values():
        begun.update(dict(spot))
    for n, name in enumerate(state.cluster.nodes):
        size, node = int(state.cluster.node_gpus[n]), nodes.get(name)
        if not size or node is None:
            continue
        ours = int(state.nodes.usable[n] - state.nodes.free[n]) + begun[n]
        up = bool(ours) or not node.gone  # Slurm shows jobs of a node that is down for a while
        if up != bool(state.node_up[n]):
            yield ev.NodeUp(now_s, n) if up else ev.NodeDown(now_s, n)
        usable = min(ours + max(size - max(node.used, ours), 0), size) if node.open else ours
        if up and usable != int(state.nodes.usable[n]):
            yield ev.NodeUsable(now_s, n, usable)


# ---- jobs that start ------------------------------------------------------------------------------------------------


def _starts(state: State, rows: Mapping[str, WatchedJob]) -> Iterator[tuple[int, Spot]]:
    """Jobs that run in Slurm and wait here, with their GPUs, as far as the nodes have room for them.

    A job that began and ended between two looks starts too. If there is no room for it, it is NOWHERE.
    """
    room = (state.cluster.node_gpus - (state.nodes.usable - state.nodes.free)).tolist()  # n  GPUs that no job holds
    for j in state.active_jobs.tolist():
        row = rows.get(state.specs[j].id)
        if row is None or state.held_gpus[j] or int(state.phase[j]) != Phase.WAITING:
            continue
        run = row.runs[-1] if row.runs and row.ended else row.running
        if run is None:
            continue
        spot = spot_of(state, row.spec.gpus, run.hosts, room)
        for node, gpus in spot:
            room[node] -= gpus
        if spot or row.ended:
            yield j, spot


def spot_of(state: State, gpus: int, hosts: tuple[str, ...], room: list[int]) -> Spot:
    """The GPUs of a run by node, spread as evenly as there is room; NOWHERE if it is on nodes that we do not have."""
    known = [state.cluster.nodes.index(host) for host in hosts if host in state.cluster.nodes]
    if len(known) < len(hosts) or not known or gpus < len(known):
        return NOWHERE
    if any(room[n] < 1 for n in known) or sum(room[n] for n in known) < gpus:
        return NOWHERE
    counts = dict.fromkeys(known, 0)
    left = gpus
    while left:
        open_ = [n for n in known if counts[n] < room[n]]
        each = max(left // len(open_), 1)
        for n in open_:
            taken = min(each, room[n] - counts[n], left)
            counts[n] += taken
            left -= taken
    return tuple(sorted((n, count) for n, count in counts.items() if count))


def _started(state: State, spots: Mapping[int, Spot], now_s: float) -> Iterator[Record]:
    unknown = [j for j, spot in spots.items() if not spot]
    if unknown:
        yield ev.Cancelled(now_s, np.array(unknown, dtype=np.int64))
    placed = {j: spot for j, spot in spots.items() if spot}
    if not placed:
        return
    jobs = np.array(list(placed), dtype=np.int64)
    yield Decision(now_s, Cause.EVENT, NO_JOBS, jobs, tuple(placed.values()), math.inf, BY_SLURM, by_clock=True)
    rates = np.array([rate_on(state, j, spot) for j, spot in placed.items()])
    yield ev.Started(now_s, jobs, rates, np.full(len(jobs), now_s), measured=False)


def rate_on(state: State, j: int, spot: Spot) -> float:
    """Samples/s that the profile, or what is assumed for an unknown model, gives for the spot."""
    return spot_rate(partial(state.estimator.at, state.specs[j].model), spot, state.cluster.type_of)
