"""After a restart: adopts running leases, revokes unclaimed ones, and continues decided starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairlead.engines import endings
from fairlead.engines.fleet import Live
from fairlead.engines.leases import OVER, Condition, Gpu, Key, Lease, Sight
from fairlead.engines.progress import kept
from fairlead.engines.runner import AdoptsLeases
from fairlead.engines.situation import Situation, Start
from fairlead.model.lifecycle import ENDED, HAS_GPUS, Phase

_STOPS = (Phase.STOPPING, Phase.MOVING)


def resume(s: Situation) -> None:
    """Resume all jobs, with a single look, because an engine may be remote."""
    state = s.state
    phases = state.phase[: state.jobs]
    begun = np.flatnonzero((state.leases[: state.jobs] > 0) & ~np.isin(phases, ENDED)).tolist()
    last = {j: s.fleet.last_launched(state.specs[j].id, int(state.leases[j])) for j in begun}
    sights = s.fleet.sights([lease for lease in last.values() if lease is not None])
    for j, lease in last.items():
        if lease is not None and lease.damage:
            lease = _conceivable(s, j, lease)
        _resume_job(s, j, Phase(int(phases[j])), lease, sights)
    _find_strays(s, {j: lease.number for j, lease in last.items() if lease is not None})


def _find_strays(s: Situation, last: dict[int, int]) -> None:
    """Watch earlier leases that may still run, such as those on a node that was silent: their GPUs are not free.

    Nothing waits for them, and they are killed as soon as they can be reached. Jobs that have ended do not count.
    """
    keys = [(j, (id_, n)) for j in last for id_ in (s.state.specs[j].id,) for n in s.runner.numbers(id_) if n < last[j]]
    recalled = ((j, s.runner.recall(key)) for j, key in keys)
    earlier = [(j, lease) for j, lease in recalled if lease is not None and not lease.damage]
    sights = s.fleet.sights([lease for _, lease in earlier]) if earlier else {}
    for j, lease in earlier:
        sight = sights[lease.key]
        if sight.condition not in OVER:
            stray = Live(lease, j, s.now_s, s.outbox.safe(j), announced=True, dropped=True, astray=True, seen=sight)
            s.fleet.add(stray)
            s.fleet.ask(stray, s.now_s)


def _resume_job(s: Situation, j: int, phase: Phase, lease: Lease | None, sights: dict[Key, Sight]) -> None:
    number = int(s.state.leases[j])
    if phase is Phase.MOVING and lease is not None and lease.number == number:
        endings.stopped(s, j, _kept_before(s, j, number))  # the stop was not logged any more
        phase = Phase.STARTING
    if phase is Phase.MOVING or (phase is Phase.STARTING and (lease is None or lease.number < number)):
        s.starts[j] = Start(number, s.state.spots[j])
    stops = phase in _STOPS
    # A job that stops may have received GPUs since, perhaps several times; its last lease counts.
    mine = lease is not None and (stops or (phase in HAS_GPUS and lease.number == number))
    if lease is not None:
        _adopt(s, j, phase, lease, sights[lease.key], mine)
    if not mine and stops:
        endings.stopped(s, j, s.outbox.safe(j))  # it was never launched
    elif not mine and phase is Phase.RUNNING:
        endings.lost(s, j, s.outbox.safe(j))


def _conceivable(s: Situation, j: int, lease: Lease) -> Lease:
    """A damaged lease as it may have been: with the job's command, and on all GPUs of the nodes that it last had."""
    cluster, spot = s.state.cluster, s.state.spots[j] or s.state.last_spots[j]
    gpus = tuple(
        Gpu(cluster.nodes[node], cluster.types[cluster.node_type[node]], slot)
        for node, _ in spot
        for slot in range(int(cluster.node_gpus[node]))
    )
    return replace(lease, gpus=gpus, command=s.command_of(lease.job))


def _kept_before(s: Situation, j: int, number: int) -> float:
    lease = s.fleet.last_launched(s.state.specs[j].id, number - 1)
    if lease is None:
        return s.outbox.safe(j)
    old = Live(lease, j, s.now_s, s.outbox.safe(j))
    return kept(s.state, old, s.fleet.sights([lease])[lease.key], s.now_s)


def _adopt(s: Situation, j: int, phase: Phase, lease: Lease, sight: Sight, mine: bool) -> None:
    """Watch a lease from now on unless it is known to be over; its condition may still be unseen."""
    unwanted = sight.condition is Condition.NEVER_CLAIMED or (sight.condition is Condition.QUEUED and not mine)
    if unwanted and s.runner.revoke(lease.key):
        sight = Sight(Condition.VANISHED)
    if not mine and sight.condition in OVER:
        return
    live = Live(
        lease, j, s.now_s, s.outbox.safe(j), announced=phase is not Phase.STARTING, dropped=not mine, seen=sight
    )
    s.fleet.add(live)
    if sight.condition not in OVER and isinstance(s.runner, AdoptsLeases):
        s.runner.adopt(lease)
    if not mine or phase in _STOPS or lease.damage:
        live.asked_s = s.now_s
        if sight.condition not in OVER:
            s.fleet.ask(live, s.now_s)
