"""Leases that the log does not contain, because it was put back from a backup: no number of theirs is used again.

A job whose newest lease is not in the log continues at the next thousand. So does a job of an earlier incarnation, even
if none of its leases is found here: they may have run elsewhere, and the fence of its checkpoints counts numbers.
"""

from __future__ import annotations

import numpy as np

from fairlead.engines.arrays import one
from fairlead.engines.fleet import NO_JOB, Live
from fairlead.engines.leases import OVER, Condition, Key
from fairlead.engines.runner import AdoptsLeases
from fairlead.engines.situation import Situation
from fairlead.model.events import Renumbered
from fairlead.model.lifecycle import ENDED

NUMBERS = 1000  # of leases that belong together


def renumbered(s: Situation) -> Renumbered | None:
    """The event that gives jobs new numbers of leases after a start; None if no job needs one."""
    state = s.state
    active = np.flatnonzero(~np.isin(state.phase[: state.jobs], ENDED)).tolist()
    after = {j: _number_after(s, state.specs[j].id, int(state.leases[j])) for j in active}
    changed = {j: number for j, number in after.items() if number is not None}
    if not changed:
        return None
    return Renumbered(s.now_s, np.array([*changed], dtype=np.int64), np.array([*changed.values()], dtype=np.int64))


def renumber_arrival(s: Situation, job: str) -> None:
    """Put the event for a job that arrives, if it had leases before."""
    number, j = _number_after(s, job, 0), s.outbox.position(job)
    if number is not None and j is not None:
        s.outbox.put(Renumbered(s.now_s, one(j), one(number)))


def stop_strangers(s: Situation, jobs: list[str]) -> list[Key]:
    """Stop all leases of jobs that are not in the log, and return those that still run.

    They are asked to stop, and killed after their grace period. Until they are gone nobody gets their GPUs.
    """
    recalled = [s.runner.recall((job, number)) for job in jobs for number in s.runner.numbers(job)]
    leases = [lease for lease in recalled if lease is not None]
    sights = s.fleet.sights(leases)
    running = []
    for lease in leases:
        sight = sights[lease.key]
        if sight.condition in OVER:
            continue
        if sight.condition is not Condition.RUNNING and s.runner.revoke(lease.key):
            continue
        live = Live(lease, NO_JOB, s.now_s, 0.0, dropped=True, seen=sight)
        s.fleet.add(live)
        if isinstance(s.runner, AdoptsLeases):
            s.runner.adopt(lease)
        s.fleet.ask(live, s.now_s)
        running.append(lease.key)
    return running


def _number_after(s: Situation, job: str, known: int) -> int | None:
    """The number after which the job's leases are counted from now on; None if it is the known one."""
    newest, floor = max(s.runner.numbers(job), default=0), s.lease_floor(job)
    continues = newest == known > 0  # its last lease is the one of the log, so that it can be adopted
    if newest > known or (known < floor and not continues):
        return max(floor, (max(newest, known) // NUMBERS + 1) * NUMBERS)
    return None
