"""Nodes that join and leave, are drained, fall silent and come back, and GPUs of theirs that other systems use."""

from __future__ import annotations

from fairlead.engines import endings
from fairlead.engines.leases import Condition, Look
from fairlead.engines.progress import kept
from fairlead.engines.situation import Situation
from fairlead.model import events as ev
from fairlead.model.cluster import NodeGroup


def note(s: Situation, look: Look) -> None:
    """Put the events for nodes that join, fall silent or come back."""
    for name, group in look.joined.items():
        join(s, name, group)
    if look.down is not None:
        for node in sorted(look.down - s.silent):
            s.silent.add(node)
            _give_up(s, node)
        for node in sorted(s.silent - look.down):
            s.silent.discard(node)
            bring_up(s, node)


def note_usable(s: Situation, look: Look) -> None:
    """Put the events for GPUs that other systems take or return, and for nodes that are closed or opened."""
    for node, gpus in look.usable.items():
        n = s.outbox.node(node)
        if n is not None:
            _set_usable(s, n, gpus)


def take_down(s: Situation, node: str) -> None:
    """Take a node down. Its jobs lose their GPUs at once, but their processes may still write a checkpoint."""
    n = s.outbox.node(node)
    if n is None or not s.outbox.node_up(n):
        return
    s.outbox.put(ev.NodeDown(s.now_s, n))
    for j in s.outbox.jobs_on(n):
        live = s.fleet.current(j)
        safe = s.outbox.safe(j)
        if live is not None:
            safe = kept(s.state, live, live.seen, s.now_s)
            live.dropped = True
            s.fleet.ask(live, s.now_s)
        endings.lost(s, j, safe)


def bring_up(s: Situation, node: str) -> None:
    n = s.outbox.node(node)
    if n is not None and not s.outbox.node_up(n) and node not in s.drained | s.silent:
        s.outbox.put(ev.NodeUp(s.now_s, n))


def join(s: Situation, node: str, group: NodeGroup) -> None:
    if s.outbox.node(node) is None:
        s.outbox.put(ev.NodeAdded(s.now_s, node, group.gpu, group.gpus, group.memory))
        s.drained.discard(node)
        s.silent.discard(node)


def leave(s: Situation, node: str) -> None:
    """Remove a node. Processes that still write a checkpoint there may finish, because no job needs its GPUs."""
    n = s.outbox.node(node)
    if n is not None:
        take_down(s, node)
        s.outbox.put(ev.NodeRemoved(s.now_s, n))
        s.drained.discard(node)
        s.silent.discard(node)


def _give_up(s: Situation, node: str) -> None:
    """Stop waiting for leases on a node that does not answer, and kill them as far as they can be reached.

    A lease that has not begun could begin when the node comes back, so it must be revoked first.
    """
    take_down(s, node)
    for live in s.fleet.on(node):
        if live.seen.condition is Condition.RUNNING:
            live.astray = True
            s.fleet.kill(live, s.now_s)
        else:
            s.fleet.ask(live, s.now_s)
        if not live.dropped:  # the loop still waits for its end
            live.dropped = True
            endings.gone(s, live, kept(s.state, live, live.seen, s.now_s))
        endings.grant_wish(s, live.job)


def _set_usable(s: Situation, n: int, gpus: int) -> None:
    """Set the usable GPUs of a node, but never fewer than our jobs hold once the pending events are folded."""
    nodes, spots = s.state.nodes, s.state.spots
    given_back = sum(count for j in s.outbox.off_gpus() for where, count in spots[j] if where == n)
    held = int(nodes.usable[n] - nodes.free[n]) - given_back
    usable = min(max(gpus, held), int(s.state.cluster.node_gpus[n]))
    if usable != s.outbox.usable(n):
        s.outbox.put(ev.NodeUsable(s.now_s, n, usable))
