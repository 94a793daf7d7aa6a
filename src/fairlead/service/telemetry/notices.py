"""Notices: jobs that start, end, fail or are pre-empted are announced to a receiver that the operator has configured.

The log is the queue: what was not delivered is read again after a restart, so that a notice comes at least once, with
the same id each time. At most `MOST_PENDING` notices wait; beyond that the oldest are dropped and counted. A receiver
that is slow or dead holds up the thread of its channel and nothing else.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.model.errors import FairleadError
from fairlead.model.words import counted
from fairlead.service.store.followed import FollowedJob, FollowedRecord, identity_of_log, jobs_by_id
from fairlead.service.store.identity import Identity
from fairlead.service.store.reads import Reads
from fairlead.service.telemetry.log_lines import instant
from fairlead.service.telemetry.metrics import NoticeFigures

KIND = "notices/1"
MOST_PENDING = 10_000
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0  # after attempts that failed
TURN_S = 0.5  # after which new records are read between two deliveries
MESSAGE_S = 60.0  # between two messages about the same trouble
_EVENTS = {
    "started": "job_started",
    "finished": "job_finished",
    "failed": "job_failed",
    "cancelled": "job_cancelled",
    "decision": "job_preempted",
}


class DeliveryError(FairleadError):
    """The receiver did not take the notices; the text says why, without secrets."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One event of one job. `id` is the same whenever the notice is sent."""

    seq: int
    id: str
    event: str
    time_s: float
    job: str
    name: str
    tenant: str
    reason: str | None

    def to_json(self) -> dict[str, Any]:
        document = {
            "id": self.id,
            "event": self.event,
            "time": instant(self.time_s),
            "job": self.job,
            "name": self.name,
            "tenant": self.tenant,
        }
        return document if self.reason is None else {**document, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Channel:
    """A way to deliver notices: up to `batch` at once. Without `retries` a failed attempt is the last one."""

    name: str
    deliver: Callable[[Sequence[Notice]], None]  # DeliveryError: it failed
    batch: int = 100
    retries: bool = True


class Notices:
    """Implements `LogConsumer` for one channel, beginning with what happens after the first start with it."""

    kinds: Collection[str] = frozenset(_EVENTS)

    def __init__(self, reads: Reads, channel: Channel, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = channel.name
        self._reads, self._channel, self._clock = reads, channel, clock
        self._identity = identity_of_log(reads)
        self._pending: deque[Notice] = deque()
        self._delivered = self._failed = self._dropped = 0
        self._pause_s, self._again_s, self._message_s = FIRST_PAUSE_S, 0.0, -MESSAGE_S
        self._unreported = 0  # drops that no message has mentioned

    def figures(self) -> NoticeFigures:
        return NoticeFigures(self.name, self._delivered, self._failed, self._dropped, len(self._pending))

    def begin(self, memory: Any) -> int:
        if memory is not None:
            self._delivered, self._failed, self._dropped = (int(memory[key]) for key in _MEMORY)
        return self._reads.last_seq()

    def take(self, page: list[FollowedRecord]) -> None:
        self._pending.extend(notices_of(page, jobs_by_id(self._reads, _named(page)), self._identity))
        self._drop(len(self._pending) - MOST_PENDING)
        until_s = self._clock() + TURN_S
        while self._pending and self._again_s <= self._clock() < until_s:
            self._attempt()

    def settled(self, last: int) -> int:
        return self._pending[0].seq - 1 if self._pending else last

    def memory(self) -> Any:
        return dict(zip(_MEMORY, (self._delivered, self._failed, self._dropped), strict=True))

    def _attempt(self) -> None:
        batch = [self._pending[k] for k in range(min(self._channel.batch, len(self._pending)))]
        try:
            self._channel.deliver(batch)
        except DeliveryError as error:
            self._failed += 1
            if not self._channel.retries:
                self._drop(len(batch))
            else:
                self._again_s = self._clock() + self._pause_s
                self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
            self._report(str(error))
            return
        for _ in batch:
            self._pending.popleft()
        self._delivered += len(batch)
        self._pause_s, self._again_s = FIRST_PAUSE_S, 0.0

    def _drop(self, count: int) -> None:
        for _ in range(max(count, 0)):
            self._pending.popleft()
            self._dropped += 1
            self._unreported += 1
        if count > 0 and self._channel.retries:
            self._report(f"more than {MOST_PENDING} notices wait")

    def _report(self, reason: str) -> None:
        if self._clock() - self._message_s >= MESSAGE_S:
            dropped = f", {counted(self._unreported, 'notice')} dropped" if self._unreported else ""
            waiting = counted(len(self._pending), "notice")
            text = f"fairlead: {self.name}: {reason}; {waiting} waiting{dropped}"
            print(text, file=sys.stderr, flush=True)
            self._message_s, self._unreported = self._clock(), 0


_MEMORY = ("delivered", "failed_attempts", "dropped")


def notices_of(page: Sequence[FollowedRecord], jobs: Mapping[str, FollowedJob], identity: Identity) -> list[Notice]:
    """The notices of these records; a job that is archived already is announced without its name."""
    return [
        Notice(
            record.seq,
            f"{identity.store}-{identity.incarnation}-{record.seq}-{id_}",
            _EVENTS[record.kind],
            record.time_s,
            id_,
            jobs[id_].name if id_ in jobs else "",
            jobs[id_].tenant if id_ in jobs else "",
            record.body.get("reason"),
        )
        for record in page
        for id_ in _jobs(record)
    ]


def _jobs(record: FollowedRecord) -> list[str]:
    if record.kind == "decision":
        return [id_ for id_ in record.body["stop"] if id_ not in record.body["start"]]
    ids: list[str] = record.body["jobs"] if record.kind in _EVENTS else []
    return ids


def _named(page: Sequence[FollowedRecord]) -> list[str]:
    return list(dict.fromkeys(id_ for record in page for id_ in _jobs(record)))
