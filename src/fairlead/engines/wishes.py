"""Handles requests of users and operators from the inbox."""

from __future__ import annotations

from dataclasses import replace

from fairlead.engines import endings, nodes, pausing, starting
from fairlead.engines.arrays import one
from fairlead.engines.renumbering import renumber_arrival
from fairlead.engines.requests import (
    AddNode,
    Cancel,
    Drain,
    Hold,
    Release,
    RemoveNode,
    Request,
    Resume,
    SetLimits,
    SetPolicy,
    SetTenant,
    Submit,
)
from fairlead.engines.situation import Situation, Wish
from fairlead.model import events as ev
from fairlead.model.lifecycle import ENDED, Phase


def take(s: Situation, request: Request) -> bool:
    """Handle one request; return whether the loop must end after it.

    A repeated request, or one about an ended job, changes nothing, because requests may come again after a restart.
    """
    match request:
        case Submit(spec, _):
            if s.outbox.position(spec.id) is None:
                s.outbox.arrived(ev.Arrived(s.now_s, replace(spec, arrival_s=s.now_s)))
                renumber_arrival(s, spec.id)
        case Cancel(job) | Hold(job) | Release(job):
            j = s.outbox.position(job)
            if j is not None and s.outbox.phase(j) not in ENDED:
                _wish(s, j, type(request))
        case Drain(node):
            s.drained.add(node)
            nodes.take_down(s, node)
        case Resume(node):
            s.drained.discard(node)
            nodes.bring_up(s, node)
        case AddNode(node, group):
            nodes.join(s, node, group)
        case RemoveNode(node):
            nodes.leave(s, node)
        case SetTenant(tenant, weight, quotas):
            s.outbox.put(ev.TenantSet(s.now_s, tenant, weight, quotas))
        case SetLimits(tenant, limits):
            s.outbox.put(ev.LimitsSet(s.now_s, tenant, limits))
        case SetPolicy(policy, parameters):
            s.outbox.put(ev.PolicySet(s.now_s, policy, parameters))
            return True
    return False


def _wish(s: Situation, j: int, wish: Wish) -> None:
    phase, old = s.outbox.phase(j), s.wishes.get(j)
    if wish is Release:
        if phase is Phase.HELD:
            s.outbox.put(ev.Released(s.now_s, one(j)))
        elif j in s.state.pauses:
            pausing.end(s, j)
        elif old is Hold:
            s.wishes[j] = Release
        return
    if old is Cancel or (wish is Hold and phase is Phase.HELD):
        return
    s.wishes[j] = wish
    s.starts.pop(j, None)
    starting.ask_to_stop(s, j)
    endings.grant_wish(s, j)
