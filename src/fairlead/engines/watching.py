"""Turns the runner's looks at leases into events."""

from __future__ import annotations

import math

from fairlead.engines import endings, nodes
from fairlead.engines.arrays import one, value
from fairlead.engines.fleet import Live
from fairlead.engines.grants import believed_rate
from fairlead.engines.leases import Condition, Sight
from fairlead.engines.progress import has_progressed, measure
from fairlead.engines.situation import Situation
from fairlead.model import events as ev
from fairlead.model.lifecycle import Phase


def watch(s: Situation, progress_s: float) -> None:
    look = s.fleet.look()
    s.trouble = look.trouble
    for key, sight in look.sights.items():
        if sight.condition is not Condition.UNSEEN:
            s.fleet[key].seen = sight
    nodes.note(s, look)
    leaving = s.fleet.leaving()
    for live in s.fleet.all():
        sight = look.sight(live.lease.key)
        match sight.condition:
            case Condition.UNSEEN:
                _see_nothing(s, live)
            case Condition.RUNNING:
                _see_running(s, live, sight, progress_s)
            case Condition.NEVER_CLAIMED | Condition.QUEUED:
                _see_waiting(s, live, sight, leaving, look.closed)
            case _:
                _see_end(s, live, sight)
    nodes.note_usable(s, look)  # last: what leases gave back above must not be granted again if it cannot be used


def _see_running(s: Situation, live: Live, sight: Sight, progress_s: float) -> None:
    _announce(s, live)
    if live.asked_s is not None:
        if s.now_s >= live.asked_s + live.lease.command.grace_s:
            s.fleet.kill(live, s.now_s)
        else:
            s.fleet.ask(live, s.now_s)  # it may have started only after the first request
    elif sight.report is not None:
        _see_first_progress(s, live, sight)
        measured = measure(s.state, live, sight.report, progress_s)
        if measured is not None:
            s.outbox.put(ev.Progress(s.now_s, one(live.job), value(measured[0]), value(measured[1])))


def _see_first_progress(s: Situation, live: Live, sight: Sight) -> None:
    """Report once what the start of the lease has cost, unless the operator has set what restarts cost."""
    if not s.learns_restarts or live.launched_s is None or sight.report is None:
        return
    if has_progressed(s.state, live, sight.report):
        s.outbox.put(ev.FirstProgress(s.now_s, one(live.job), value(s.now_s - live.launched_s), sight.warm))
        live.launched_s = None


def _see_waiting(s: Situation, live: Live, sight: Sight, leaving: set[str], closed: frozenset[str]) -> None:
    """Revoke a lease that has not begun within the runner's time limits, or that waits for a node that is closed."""
    queued = sight.condition is Condition.QUEUED
    if queued and any(gpu.node in leaving for gpu in live.lease.gpus):
        live.since_s = s.now_s
    capabilities = s.runner.capabilities
    patience_s = capabilities.queue_s if queued else capabilities.claim_s
    if queued and not closed.isdisjoint(live.lease.nodes):
        patience_s = 0.0
    if live.asked_s is None and s.now_s < live.since_s + patience_s:
        return
    if not s.runner.revoke(live.lease.key):
        return  # it has begun after all, or the engine did not answer; the next look shows which
    if live.asked_s is None and not live.dropped and s.outbox.phase(live.job) is Phase.STARTING:
        s.fleet.remove(live, Sight(Condition.VANISHED))
        reason = f": {sight.reason}" if sight.reason else ""
        if queued:  # others use the GPUs, so the job is not to blame
            how = f"was queued for {patience_s:g} s" if patience_s else "was queued for a node that takes no jobs now"
            endings.waits_again(s, live.job, f"{how}{reason}")
        else:
            endings.refused(s, live.job, live.lease, f"nothing came up within {patience_s:g} s{reason}")
    else:
        _see_end(s, live, sight)


def _see_nothing(s: Situation, live: Live) -> None:
    """Revoke an unseen lease that was asked to stop and may not have begun: its node may never answer again."""
    if live.asked_s is None or live.seen.condition is Condition.RUNNING:
        return
    if s.runner.revoke(live.lease.key):
        _see_end(s, live, Sight(Condition.VANISHED))
    elif not s.silent.isdisjoint(live.lease.nodes) and s.now_s >= live.asked_s + s.runner.capabilities.claim_s:
        live.astray = True  # it must have begun without being seen
        endings.grant_wish(s, live.job)


def _see_end(s: Situation, live: Live, sight: Sight) -> None:
    s.fleet.remove(live, sight)
    if not live.dropped:
        if sight.condition is Condition.ENDED:
            _announce(s, live)  # it was over before we looked
        endings.ended(s, live, sight)
    endings.grant_wish(s, live.job)


def _announce(s: Situation, live: Live) -> None:
    j = live.job
    if live.announced or live.dropped or s.outbox.phase(j) is not Phase.STARTING:
        return
    live.announced = True
    rate = believed_rate(s.state, j, s.state.spots[j])
    ran = not math.isnan(s.state.first_start_s[j])
    resume_s = s.now_s + (float(s.state.restart_s[j]) if ran else 0.0)
    s.outbox.put(ev.Started(s.now_s, one(j), value(rate), value(resume_s), measured=False))
