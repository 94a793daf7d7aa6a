"""Incarnations of a store: each time that it is put back from a backup it begins a new one, counted from 1.

What happened after the backup is not in the files, but clients may know the jobs of that time, and their leases may
still run. So ids and lease numbers carry the incarnation: the first one has jobs j1, j2 and so on, the second one
continues with j2-41. The leases of a job from an earlier incarnation are numbered from the next thousand on.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from fairlead.engines.renumbering import NUMBERS
from fairlead.model.public_job import OWN_ID
from fairlead.service.store.facts import fact, set_fact
from fairlead.service.store.identity import identity_of


def job_id(incarnation: int, number: int) -> str:
    return f"j{number}" if incarnation == 1 else f"j{incarnation}-{number}"


def parse_job_id(id_: str) -> tuple[int, int] | None:
    """Incarnation and number of a job; None if the name is not an id of ours."""
    if re.fullmatch(OWN_ID, id_) is None:
        return None
    incarnation, _, number = id_[1:].rpartition("-")
    return int(incarnation or 1), int(number)


@dataclass(frozen=True, slots=True)
class Incarnations:
    """All incarnations so far with the request number after which each began, and the last request number."""

    after: tuple[tuple[int, int], ...]
    last: int

    @property
    def current(self) -> int:
        return self.after[-1][0]

    def unknown(self, ids: Iterable[str]) -> list[str]:
        """Ids of jobs that this store has given away at some time and that its files do not contain."""
        return [id_ for id_ in ids if self._is_unknown(id_)]

    def strangers(self, ids: Iterable[str], taken: int) -> list[str]:
        """Ids of jobs that a log which has answered requests up to `taken` does not contain."""
        return [id_ for id_ in ids if self._is_unknown(id_) or _number(id_) > taken]

    def newest(self, ids: Iterable[str]) -> int:
        """The newest incarnation of which there is an id."""
        return max((parsed[0] for parsed in map(parse_job_id, ids) if parsed is not None), default=1)

    def lease_floor(self, id_: str) -> int:
        """The number after which leases of the job are counted, if any was lost with an earlier incarnation."""
        parsed = parse_job_id(id_)
        return 0 if parsed is None or parsed[0] >= self.current else (self.current - 1) * NUMBERS

    def _is_unknown(self, id_: str) -> bool:
        parsed = parse_job_id(id_)
        if parsed is None:
            return False
        incarnation, number = parsed
        ends = [*(after for _, after in self.after[1:]), self.last]
        spans = {one: (after, end) for (one, after), end in zip(self.after, ends, strict=True)}
        after, end = spans.get(incarnation, (0, 0))
        return not after < number <= end


def _number(id_: str) -> int:
    parsed = parse_job_id(id_)
    return 0 if parsed is None else parsed[1]


def incarnations_of(requests: sqlite3.Connection) -> Incarnations:
    line = fact(requests, "incarnations")
    after = ((1, 0),) if line is None else tuple((one, number) for one, number in json.loads(line))
    return Incarnations(after, last_request(requests))


def last_request(requests: sqlite3.Connection) -> int:
    """The number of the last request, also if it is in the archive by now."""
    row = requests.execute("SELECT seq FROM sqlite_sequence WHERE name = 'requests'").fetchone()
    return 0 if row is None else int(row[0])


def begin_incarnation(requests: sqlite3.Connection, events: sqlite3.Connection, incarnation: int) -> None:
    """Begin that incarnation in both files; one that was begun already is left as it is."""
    before = incarnations_of(requests)
    if before.current < incarnation:
        requests.execute("BEGIN IMMEDIATE")
        set_fact(requests, "incarnations", json.dumps([*before.after, (incarnation, before.last)]))
        set_fact(requests, "incarnation", incarnation)
        requests.execute("COMMIT")
    identity = identity_of(events)
    if identity is None or identity.incarnation < incarnation:
        set_fact(events, "incarnation", incarnation)
