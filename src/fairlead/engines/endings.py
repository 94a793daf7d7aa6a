"""Events for jobs that leave their GPUs. These functions are called once the GPUs are free, never before."""

from __future__ import annotations

import math

from fairlead.engines import pausing
from fairlead.engines.arrays import one, value
from fairlead.engines.fleet import Live, is_failure
from fairlead.engines.leases import Lease, Report, Sight
from fairlead.engines.progress import believed, kept, samples_of
from fairlead.engines.requests import Cancel, Release
from fairlead.engines.situation import Situation
from fairlead.model import events as ev
from fairlead.model.handshake import CHECKPOINTED
from fairlead.model.lifecycle import Phase
from fairlead.rounds.model_trials import fails_because_of_the_type

MOST_REFUSALS = 3  # in a row; then the job fails


def ended(s: Situation, live: Live, sight: Sight) -> None:
    j, failures = live.job, live.lease.failures
    asked = live.asked_s is not None or sight.asked
    by_itself = not (live.reached or sight.asked)  # also if it ended before a request to stop could reach it
    if sight.code == 0:
        finished(s, j, sight.report)
    elif not asked and is_failure(sight) and fails_because_of_the_type(s.state, j) and not live.lease.command.foreign:
        s.starts.pop(j, None)
        s.outbox.put(ev.Lost(s.now_s, one(j), value(kept(s.state, live, sight, s.now_s)), unfit=True))
    elif by_itself and is_failure(sight) and failures >= live.lease.command.max_retries:
        _forget(s, j)
        attempts = f" after {failures + 1} attempts" if failures else ""
        reason = f" ({sight.reason})" if sight.reason else ""
        s.outbox.put(ev.Failed(s.now_s, one(j), f"exit code {sight.code}{reason}{attempts}"))
    elif (not asked or live.lease.damage) and s.outbox.phase(j) in (Phase.STARTING, Phase.RUNNING):
        came_to_nothing(s, live, sight)
    else:
        gone(s, live, kept(s.state, live, sight, s.now_s))


def came_to_nothing(s: Situation, live: Live, sight: Sight) -> None:
    """The lease ended by itself and without a result. The job pauses, longer each time unless it has made progress."""
    j, safe = live.job, kept(s.state, live, sight, s.now_s)
    progressed = safe > live.base or s.now_s - s.state.since_s[j] >= pausing.GOOD_S
    if progressed and sight.code == CHECKPOINTED and not live.lease.damage:
        lost(s, j, safe)
        return
    setbacks = 1 if progressed else int(s.state.setbacks[j]) + 1
    exit_code = "" if sight.code is None else f"exit code {sight.code}"
    cause = live.lease.damage or exit_code or sight.reason or "its processes vanished"
    again_s = pausing.again_s(s, j, setbacks)
    s.starts.pop(j, None)
    s.outbox.put(ev.Lost(s.now_s, one(j), value(safe), reason=cause, setbacks=setbacks, again_s=again_s))


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


def refused(s: Situation, j: int, lease: Lease, reason: str) -> None:
    """The job could not be started, and pauses; after several times in a row it fails.

    A job of another system never fails because of that: it would still wait there, and nobody would start it.
    """
    if s.state.refusals[j] + 1 >= MOST_REFUSALS and not lease.command.foreign:
        s.outbox.put(ev.Failed(s.now_s, one(j), f"could not be started {MOST_REFUSALS} times: {reason}"))
        return
    setbacks = int(s.state.setbacks[j]) + 1
    s.outbox.put(ev.Refused(s.now_s, one(j), reason, setbacks, pausing.again_s(s, j, setbacks)))


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
    s.outbox.put(ev.Held(s.now_s, one(j), value(s.outbox.safe(j))))
    if wish is Release:
        s.outbox.put(ev.Released(s.now_s, one(j)))


def _forget(s: Situation, j: int) -> None:
    s.wishes.pop(j, None)
    s.starts.pop(j, None)
