"""Runs each lease as a placement group of Ray, with a detached actor on each of its nodes (`actor.py`, `part.py`).

The state directory is on a file system that all nodes share, at the same path: how a lease ended is there, because Ray
forgets everything when its head ends. While no head answers, all leases are unseen; their processes end by themselves
once Ray has ended on their node.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.engines.leases import Condition, Key, Lease, Look, Sight, no_answer
from fairlead.engines.local import shim
from fairlead.engines.local.files import REPORT, read_exit_code, read_report
from fairlead.engines.local.log_limits import LogLimits
from fairlead.engines.ranks import rank_environment, ranks_of
from fairlead.engines.ray.cluster import RayCluster, RayError, RayLook, RayNode
from fairlead.engines.ray.importing import gpu_of
from fairlead.engines.ray.part import LOST, PARTS, RAY_ENDS_S, end_of, part_directory
from fairlead.engines.requests import Processes
from fairlead.engines.runner import Capabilities, LaunchError
from fairlead.engines.shared_leases import REPORT_EVERY_S, SharedLeases, identity
from fairlead.model.cluster import NodeGroup
from fairlead.model.errors import InputError

IDENTITY = "ray-identity"
LOOK_S = 2.0
_CREATED = "CREATED"


class RayRunner:
    """A runner over a Ray cluster. With `aliases`, nodes that Ray has and the cluster lacks join it."""

    def __init__(
        self,
        root: Path,
        ray: RayCluster,
        *,
        pace: Mapping[str, float] | None = None,  # by GPU type, if speeds are emulated
        gpus_of: Callable[[], Mapping[str, int]],  # of the nodes that belong to the cluster
        aliases: Mapping[str, str] | None = None,
        look_s: float = LOOK_S,
        report_every_s: float = REPORT_EVERY_S,
    ) -> None:
        self._leases = SharedLeases(root, pace=pace, report_every_s=report_every_s)
        self.root, self.directory = self._leases.root, self._leases.directory
        self.recall, self.jobs, self.numbers = self._leases.recall, self._leases.jobs, self._leases.numbers
        self.capabilities = Capabilities(
            look_s=look_s, looks_idle=True, claim_s=60.0, queue_s=120.0, picks_devices=True, queues=True
        )
        self._ray = ray
        self._prefix = f"fairlead:{identity(self.root, IDENTITY)}:"
        self._gpus_of = gpus_of
        self._aliases = aliases
        self._logs = LogLimits(self.root)
        self._seen = RayLook({}, frozenset(), {})
        self._unsent: dict[Key, Lease] = {}  # launched while no head answered
        self._foreign: dict[str, int] = {}  # GPUs that other work held at the last look, by node
        self._missed_s: dict[Key, float] = {}  # since when the actor of a lease that has begun is gone

    # ---- the interface of a runner ---------------------------------------------------------------------------------

    def launch(self, lease: Lease) -> None:
        self._leases.lay_out(lease, lambda directory: _plan(directory, lease))
        self._send(lease)

    def ask_to_stop(self, lease: Lease) -> bool:
        directory = self.directory(lease.key)
        if read_exit_code(directory) is not None:
            return False  # one that failed by itself before that has failed
        for asked in (directory, *directory.glob(f"{PARTS}/*")):
            with suppress(OSError):
                (asked / shim.ASKED).touch(0o600)
        actors = self._actors(lease.key)
        if not actors or not self._leases.is_claimed(lease.key):
            return False
        with suppress(RayError):
            return self._ray.ask_to_stop(actors)
        return False

    def kill(self, lease: Lease) -> None:
        with suppress(RayError):
            self._ray.kill(self._actors(lease.key))

    def look(self, leases: Sequence[Key]) -> Look:
        try:
            self._seen = seen = self._ray.look(self._prefix)
        except RayError as error:
            return no_answer(str(error))
        wanted = self._gpus_of()
        self._logs.apply(leases)
        down = frozenset(name for name in wanted if name not in seen.nodes)
        sights = {key: self._sight(key) for key in leases}
        self._missed_s = {key: since_s for key, since_s in self._missed_s.items() if key in sights}
        self._send_again()  # after the sights, because this look does not know the actors that begin now
        return Look(sights, down, self._usable(wanted), joined=self._joined(wanted))

    def revoke(self, key: Key) -> bool:
        revoked = self._leases.revoke(key)
        if revoked is None or revoked:
            self._unsent.pop(key, None)
        if revoked is None:
            return True
        if revoked:
            with suppress(RayError):  # otherwise its actors would begin and end at once
                self._ray.remove(self._name(key))
        return revoked

    def close(self) -> None:
        """End the driver of Ray."""
        self._ray.close()

    # ---- one lease -------------------------------------------------------------------------------------------------

    def _send(self, lease: Lease) -> None:
        nodes = [self._seen.nodes.get(name) for name in lease.nodes]
        memory_gib = lease.command.memory_gib
        memory = {} if memory_gib is None else {"memory": math.ceil(memory_gib * 2**30)}  # of each node
        bundles = [{"GPU": gpus, **memory} for gpus in lease.nodes.values()]
        try:
            if not self._seen.nodes:
                raise RayError("no head was reached yet", lost=True)
            if None in nodes:
                raise RayError(f"Ray has no node for the GPUs on {', '.join(lease.nodes)} any more")
            ids = [node.id for node in nodes if node is not None]
            self._ray.launch(self._name(lease.key), str(self.directory(lease.key)), bundles, ids, len(_parts(lease)))
            self._unsent.pop(lease.key, None)
        except RayError as error:
            if not error.lost:
                self._unsent.pop(lease.key, None)
                if self.revoke(lease.key):
                    raise LaunchError(str(error)) from None
            self._unsent[lease.key] = lease

    def _send_again(self) -> None:
        """Launch what no head has answered for, unless it turns out that Ray has it, or had it."""
        for key, lease in list(self._unsent.items()):
            if self._name(key) in self._seen.groups or self._leases.is_claimed(key):
                del self._unsent[key]
                continue
            with suppress(LaunchError):  # which it is when it is revoked
                self._send(lease)

    def _sight(self, key: Key) -> Sight:
        directory = self.directory(key)
        asked = (directory / shim.ASKED).exists()
        group, actors = self._seen.groups.get(self._name(key)), self._actors(key)
        report, code = read_report(directory / REPORT), read_exit_code(directory)
        if code is not None:
            if group is None:
                return Sight(Condition.ENDED, code=code, asked=asked, report=report)
            self._remove_left_over(key, actors)
            return Sight(Condition.RUNNING, asked=asked, report=report)
        claim = self._leases.claim(key)
        if "revoked" in claim:
            if group is not None:  # no head answered when it was revoked
                self._remove_left_over(key, actors)
            return Sight(Condition.VANISHED, asked=asked)
        if not claim:
            return self._unbegun(key, asked)
        lost = self._how_lost(key, directory, actors)
        if lost and group is not None:
            self._remove_left_over(key, actors)
        if lost and group is None:
            return Sight(Condition.VANISHED, asked=asked, report=report, reason=lost)
        return Sight(Condition.RUNNING, asked=asked, report=report)

    def _unbegun(self, key: Key, asked: bool) -> Sight:
        """A lease that no process has claimed yet."""
        group, actors = self._seen.groups.get(self._name(key)), self._actors(key)
        if group is None:
            return Sight(Condition.NEVER_CLAIMED, asked=asked)
        if group.state != _CREATED:
            return Sight(
                Condition.QUEUED, asked=asked, reason="Ray has not reserved its GPUs yet; others may hold them"
            )
        return Sight(Condition.QUEUED, asked=asked, reason=f"it begins; {len(actors)} of its actors are there")

    def _how_lost(self, key: Key, directory: Path, actors: Sequence[str]) -> str:
        """How a lease that has begun was lost; empty while any process of it may live."""
        for number in self._missing_parts(key, directory, actors):
            with suppress(OSError):  # the other parts look for this file, and end
                (Path(part_directory(str(directory), number)) / LOST).touch(0o600)
        if actors:
            self._missed_s.pop(key, None)
            return ""
        if (directory / LOST).exists():
            return "processes that watched over it were killed"
        lease = self.recall(key)
        grace_s = 0.0 if lease is None else lease.command.grace_s
        since_s = self._missed_s.setdefault(key, time.monotonic())
        return "its actors are gone" if time.monotonic() >= since_s + grace_s + RAY_ENDS_S else ""

    def _missing_parts(self, key: Key, directory: Path, actors: Sequence[str]) -> list[int]:
        """Parts of a gang that have ended with their actors, and without an exit code."""
        names = [path.name for path in directory.glob(f"{PARTS}/*")]
        return [
            int(name)
            for name in names
            if f"{self._name(key)}/{name}" not in actors and end_of(part_directory(str(directory), int(name))) is None
        ]

    def _remove_left_over(self, key: Key, actors: Sequence[str]) -> None:
        """Free GPUs of a lease that has ended, if its first actor did not live to do it."""
        if f"{self._name(key)}/0" not in actors:
            with suppress(RayError):
                self._ray.remove(self._name(key))

    # ---- nodes -----------------------------------------------------------------------------------------------------

    def _usable(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """GPUs that no other work holds. Only what is held at two looks in a row counts: Ray's numbers lag behind."""
        held, before = self._seen.held(), self._foreign
        nodes = {name: self._seen.nodes[name] for name in wanted if name in self._seen.nodes}
        self._foreign = {name: node.gpus - math.floor(node.free_gpus) - held[node.id] for name, node in nodes.items()}
        return {
            name: max(min(wanted[name], node.gpus) - max(min(self._foreign[name], before.get(name, 0)), 0), 0)
            for name, node in nodes.items()
        }

    def _joined(self, wanted: Mapping[str, int]) -> dict[str, NodeGroup]:
        """Nodes that the cluster lacks; one whose type is not known does not join."""
        if self._aliases is None:
            return {}
        there = [node for node in self._seen.nodes.values() if node.gpus and not wanted.get(node.name)]
        groups = {node.name: self._group_of(node, self._aliases) for node in there}
        return {name: group for name, group in groups.items() if group is not None}

    def _group_of(self, node: RayNode, aliases: Mapping[str, str]) -> NodeGroup | None:
        with suppress(InputError):
            return NodeGroup(1, gpu_of(node, aliases), node.gpus, hosts=(node.name,))
        return None

    # ---- names -----------------------------------------------------------------------------------------------------

    def _name(self, key: Key) -> str:
        return f"{self._prefix}{key[0]}/{key[1]}"

    def _actors(self, key: Key) -> list[str]:
        return sorted(name for name in self._seen.actors if name.rpartition("/")[0] == self._name(key))


def _parts(lease: Lease) -> list[list[dict[str, str]]]:
    """The variables of the ranks by node. A job of one process has one part, on its first node."""
    ranks = ranks_of(lease)
    if not ranks:
        return [[{}]]
    parts: list[list[dict[str, str]]] = [[] for _ in range(ranks[0].nodes)]
    for rank in ranks:
        parts[rank.node_rank].append(rank_environment(rank, "", 0))  # where they meet is known when they begin
    return parts


def _plan(directory: Path, lease: Lease) -> dict[str, Any]:
    """What the programs of the actors execute."""
    parts = _parts(lease)
    if lease.command.processes != Processes.ONE:
        for number in range(len(parts)):
            Path(part_directory(str(directory), number)).mkdir(parents=True, mode=0o700)
    return {"parts": parts, "ranks": parts[0]}
