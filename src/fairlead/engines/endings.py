"""Events for jobs that leave their GPUs. These functions are called once the GPUs are free, never before."""

from __future__ import annotations

import math

import numpy as np

from fairlead.engines.fleet import Live, is_failure
from fairlead.engines.leases import Report, Sight
from fairlead.engines.progress import believed, kept, samples_of
from fairlead.engines.requests import Cancel, Release
from fairlead.engines.situation import Situation
from fairlead.model import events as ev
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.lifecycle import Phase
from fairlead.rounds.model_trials import fails_because_of_the_type

MOST_REFUSALS = 3  # in a row; then the job fails


def ended(s: Situation, live: Live, sight: Sight) -> None:
    j, failures = live.job, live.lease.failures
    asked = live.asked_s is not None or sight.asked
    if sight.code == 0:
        finished(s, j, sight.report)
    elif not asked and is_failure(sight) and fails_because_of_the_type(s.state, j):
        s.starts.pop(j, None)
        s.outbox.put(ev.Lost(s.now_s, one(j), value(kept(s.state, live, sight, s.now_s)), unfit=True))
    elif not asked and is_failure(sight) and failures >= live.lease.command.max_retries:
        _forget(s, j)
        attempts = f" after {failures + 1} attempts" if failures else ""
        s.outbox.put(ev.Failed(s.now_s, one(j), f"exit code {sight.code}{attempts}"))
    else:
        gone(s, live, kept(s.state, live, sight, s.now_s))


def gone(s: Situation, live: Live, safe: float) -> None:
    """The lease ended without a result: as requested, or else the job has lost its GPUs."""
    j = live.job
    if j in s.wishes:
        s.outbox.keep(j, safe)  # `grant_wish` puts the event
    elif live.asked_s is not None and s.outbox.phase(j) in (Phase.STOPPING, Phase.MOVING):
        stopped(s, j, safe)
    else:
        lost(s, j, safe)


def stopped(s: Situation, j: int, safe: float) -> None:
    s.outbox.put(ev.Stopped(s.now_s, one(j), value(safe)))


def lost(s: Situation, j: int, safe: float) -> None:
    s.starts.pop(j, None)
    s.outbox.put(ev.Lost(s.now_s, one(j), value(safe)))


def finished(s: Situation, j: int, report: Report | None) -> None:
    _forget(s, j)
    done = None if report is None else samples_of(s.state, j, report.step, report.samples)
    if done is None:
        total = float(s.state.total[j])
        done = believed(s.state, j, s.now_s) if math.isnan(total) else total
    s.outbox.put(ev.Finished(s.now_s, one(j), value(done)))


def refused(s: Situation, j: int, reason: str) -> None:
    """The job could not be started; after several times in a row it fails."""
    s.refusals[j] = s.refusals.get(j, 0) + 1
    if s.refusals[j] < MOST_REFUSALS:
        waits_again(s, j, reason)
    else:
        del s.refusals[j]
        s.outbox.put(ev.Failed(s.now_s, one(j), f"could not be started {MOST_REFUSALS} times: {reason}"))


def waits_again(s: Situation, j: int, reason: str) -> None:
    """The job was not started, for a reason outside of it, and waits again."""
    s.outbox.put(ev.Refused(s.now_s, one(j), reason))


def grant_wish(s: Situation, j: int) -> None:
    """Put the events of a requested hold or cancellation, once nothing of the job runs."""
    if j not in s.wishes or s.fleet.of(j):
        return
    wish = s.wishes.pop(j)
    if wish is Cancel:
        s.outbox.put(ev.Cancelled(s.now_s, one(j)))
        return
    s.outbox.put(ev.Held(s.now_s, one(j), value(s.outbox.done(j))))
    if wish is Release:
        s.outbox.put(ev.Released(s.now_s, one(j)))


def _forget(s: Situation, j: int) -> None:
    s.wishes.pop(j, None)
    s.starts.pop(j, None)


def one(j: int) -> IntArray:
    return np.array([j], dtype=np.int64)


def value(value: float) -> FloatArray:
    return np.array([value])
