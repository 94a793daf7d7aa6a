"""An engine that only watches Slurm: it turns what the queue and the nodes show into records, and applies nothing.

It runs these commands and no others, each of which any user may run: `squeue` and `sinfo` once per look, and
`scontrol show config`, `sshare` and `sacctmgr show` at the start and once an hour. What it sees is in the record
(`watch_file`) before it is folded. New jobs pass through the inbox like submissions, so that their rows are on disk first.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlead.engines.requests import Inbox, Request, SetPolicy, Submit
from fairlead.engines.slurm.accounts import LIMITS, SHARES, read_quotas, read_weights
from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.folding import SlurmHardware, catch_up
from fairlead.engines.slurm.job_requests import UNKNOWN_MODEL, site_of
from fairlead.engines.slurm.machines import SlurmNode
from fairlead.engines.slurm.watch_file import WatchedNode, WatchFile, job_line, node_line
from fairlead.engines.slurm.watched import WatchedJob, watch
from fairlead.model import events as ev
from fairlead.model.decision import Decision
from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.model.quotas import Quota
from fairlead.model.words import counted
from fairlead.rounds.records import Record
from fairlead.rounds.state import State

LOOK_S = 10.0
ACCOUNTS_S = 3600.0
HEARTBEAT_S = 300.0  # a line in the record even if nothing changes, so that a gap is known
ANNOUNCE_AGAIN_S = 60.0  # a job that has not arrived after this time is announced again, as after a full disk
_MISSED, _PATIENCE_S = 3, 10.0  # a gap is longer than this many looks take, and than a busy machine needs for one


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What an operator states about the site."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    models: Sequence[tuple[str, str]] = ()  # (pattern of job names, model)
    default_model: str = UNKNOWN_MODEL
    look_s: float = LOOK_S
    keep_s: float = math.inf  # after which ended jobs leave the record


class ShadowEngine:
    """The loop's engine over a cluster that Slurm schedules. `wall` is the clock of the facts, `clock` that of the log."""

    def __init__(
        self,
        state: State,
        slurm: Slurm,
        inbox: Inbox,
        record: WatchFile,
        options: WatchOptions,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        announce: Callable[[Sequence[WatchedJob]], None],
        looked: Callable[[float, bool], None] = lambda took_s, answered: None,
    ) -> None:
        self._state, self._slurm, self._inbox, self._record, self._options = state, slurm, inbox, record, options
        self._clock, self._wall, self._announce, self._looked = clock, wall, announce, looked
        self._look_due_s = self._accounts_due_s = -math.inf  # by the clock of the log
        self._looked_s: float | None = None  # wall clock of the last look that succeeded
        self._nodes: dict[str, SlurmHardware] | None = None
        self._announced: dict[str, float] = {}  # job -> when, until it arrives
        self._begun: dict[str, float] = {}  # job -> start of the run that was folded
        self._terms: dict[str, tuple[float, tuple[Quota, ...]]] = {}
        self._about: dict[str, str] = {}  # what `sentences` says besides the queue
        self._over = False

    def now(self) -> float:
        return max(self._clock(), self._state.now_s)

    def wait(self, until_s: float) -> list[Record] | None:
        """The next records, or none if `until_s` comes first; None ends the loop."""
        if self._over:
            self._over = False
            return None
        while True:
            records = self._look() + self._caught_up()
            if records:
                return records
            requests = self._inbox.take(max(min(until_s, self._look_due_s) - self.now(), 0.0))
            if requests is None:
                return None
            records = [record for request in requests for record in self._taken(request)]
            if records or self.now() >= until_s:
                return records

    def apply(self, decision: Decision) -> None:
        """Nothing is done: another scheduler runs this cluster."""

    def forget_old(self) -> None:
        """Drop from the record what is older than the operator keeps."""
        self._record.forget(self._wall() - self._options.keep_s)

    def sentences(self) -> list[str]:
        """What a reader must know about what is seen."""
        aside = Counter(self._record.record.aside.values())
        lines = [f"{counted(count, 'job')} left aside: {reason}" for reason, count in aside.most_common(5)]
        return [*self._about.values(), *lines]

    # ---- looking ---------------------------------------------------------------------------------------------------

    def _look(self) -> list[Record]:
        if self._clock() < self._look_due_s:
            return []
        self._look_due_s = self._clock() + self._options.look_s
        terms = self._accounts()
        began_s = time.monotonic()
        try:
            queue = self._slurm.queue()
            nodes = self._slurm.nodes()
        except SlurmError as error:
            self._looked(time.monotonic() - began_s, False)
            self._about["silence"] = f"Slurm has not answered the last look ({error}); what follows is older"
            return terms
        self._looked(time.monotonic() - began_s, True)
        now_s = self._wall()
        lines = [*self._gap(now_s), *self._node_lines(nodes, now_s)]
        site = site_of(nodes.values(), self._options.aliases, self._options.models, self._options.default_model)
        known = self._record.record
        news = watch(known.jobs, queue, site, self._looked_s or known.last_s or now_s, now_s)
        lines += [job_line(now_s, row) for row in news.changed]
        aside = {id_: reason for id_, reason in news.aside.items() if id_ not in known.aside}
        lines += [{"time_s": now_s, "aside": aside}] if aside else []
        if not lines and now_s - (known.last_s or 0.0) >= HEARTBEAT_S:
            lines = [{"time_s": now_s}]
        self._record.write(lines)
        self._nodes, self._looked_s = dict(self._hardware(nodes)), now_s
        self._about.pop("silence", None)
        self._note_unseen(nodes)
        self._announce_new()
        return terms

    def _gap(self, now_s: float) -> Iterator[dict[str, Any]]:
        """A line if nobody watched for longer than a few looks take."""
        before = self._looked_s or self._record.record.last_s
        patience_s = max(_MISSED * self._options.look_s, _PATIENCE_S) + (HEARTBEAT_S if self._looked_s is None else 0.0)
        if before is not None and now_s - before > patience_s:
            why = "the service did not run" if self._looked_s is None else "Slurm did not answer"
            yield {"time_s": now_s, "gap": [before, why]}

    def _node_lines(self, nodes: Mapping[str, SlurmNode], now_s: float) -> Iterator[dict[str, Any]]:
        known = self._record.record.nodes
        present = {name: _watched(name, hardware) for name, hardware in self._hardware(nodes)}
        for name in sorted(known.keys() - present.keys()):
            present[name] = WatchedNode(name, known[name].type, 0, up=False)
        yield from (node_line(now_s, node) for name, node in present.items() if known.get(name) != node)

    def _hardware(self, nodes: Mapping[str, SlurmNode]) -> Iterator[tuple[str, SlurmHardware]]:
        """Nodes with GPUs of one type; others are not part of the cluster."""
        for name, node in nodes.items():
            if len(node.gpus) == 1:
                ((type_, gpus),) = node.gpus.items()
                try:
                    gpu = canonical_gpu(type_ or "gpu", self._options.aliases)
                except InputError:
                    continue
                yield name, SlurmHardware(gpu, gpus, node.used, node.gone, node.open)

    def _note_unseen(self, nodes: Mapping[str, SlurmNode]) -> None:
        """State how many GPUs are used by jobs that are not in the record: hidden ones, or ones that are left aside."""
        used = sum(node.used for node in nodes.values())
        ours = sum(row.spec.gpus for row in self._record.record.jobs.values() if row.running is not None)
        if used > ours:
            self._about["unseen"] = f"{counted(used - ours, 'GPU')} held by jobs that are hidden or left aside"
        else:
            self._about.pop("unseen", None)

    # ---- records ---------------------------------------------------------------------------------------------------

    def _announce_new(self) -> None:
        now_s, arrived = self._clock(), self._state.position
        again_s = now_s - ANNOUNCE_AGAIN_S
        self._announced = {id_: at_s for id_, at_s in self._announced.items() if id_ not in arrived and at_s > again_s}
        self._begun = {id_: start_s for id_, start_s in self._begun.items() if id_ in arrived}
        rows = [
            row
            for id_, row in self._record.record.jobs.items()
            if not row.ended and id_ not in arrived and id_ not in self._announced
        ]
        if rows:
            self._announced.update((row.spec.id, now_s) for row in rows)
            self._announce(sorted(rows, key=lambda row: (row.spec.arrival_s, row.spec.id)))

    def _caught_up(self) -> list[Record]:
        if self._nodes is None:
            return []
        rows = self._record.record.jobs
        records = catch_up(self._state, rows, self._nodes, self._begun, self.now())
        for record in records:
            if isinstance(record, Decision):
                ids = [self._state.specs[j].id for j in record.start.tolist()]
                self._begun.update({id_: rows[id_].runs[-1].start_s for id_ in ids})
        return records

    def _taken(self, request: Request) -> Iterator[Record]:
        if isinstance(request, Submit) and request.spec.id not in self._state.position:
            yield ev.Arrived(self.now(), request.spec)
        elif isinstance(request, SetPolicy):
            self._over = True
            yield ev.PolicySet(self.now(), request.policy, request.parameters)

    # ---- tenants ---------------------------------------------------------------------------------------------------

    def _accounts(self) -> list[Record]:
        """Weights and limits of accounts where they have changed."""
        if self._clock() < self._accounts_due_s:
            return []
        self._accounts_due_s = self._clock() + ACCOUNTS_S
        self._note_private()
        weights, quotas = self._weights(), self._quotas()
        if weights != self._record.record.weights:
            self._record.write([{"time_s": self._wall(), "weights": weights}])
        terms = {name: (weights.get(name, 1.0), quotas.get(name, ())) for name in (*weights, *quotas)}
        news = {name: term for name, term in terms.items() if self._terms.get(name) != term}
        self._terms |= news
        return [ev.TenantSet(self.now(), name, weight, limits) for name, (weight, limits) in news.items()]

    def _weights(self) -> dict[str, float]:
        try:
            weights = read_weights(self._slurm.run(*SHARES))
        except SlurmError as error:
            weights = self._record.record.weights if error.lost else {}
        if weights:
            self._about.pop("weights", None)
        else:
            self._about["weights"] = "Slurm has no accounting database with shares: all accounts have the same weight"
        return weights

    def _quotas(self) -> dict[str, tuple[Quota, ...]]:
        try:
            quotas, notes = read_quotas(self._slurm.run(*LIMITS), self._state.cluster.types, self._options.aliases)
        except SlurmError:
            return {}
        if notes:
            self._about["limits"] = "; ".join(notes)
        return quotas

    def _note_private(self) -> None:
        try:
            config = self._slurm.run("scontrol", "show", "config")
        except SlurmError:
            return
        settings = {key.strip(): text.strip() for key, _, text in (line.partition("=") for line in config.split("\n"))}
        private = settings.get("PrivateData", "none")
        if "jobs" in private.split(","):
            self._about["private"] = (
                f"PrivateData={private}: Slurm shows an ordinary user only their own jobs; ask for the Operator role "
                "(sacctmgr modify user NAME set adminlevel=operator), or run the service as a user who has it"
            )


def _watched(name: str, node: SlurmHardware) -> WatchedNode:
    return WatchedNode(name, node.gpu, node.gpus, up=node.open and not node.gone)
