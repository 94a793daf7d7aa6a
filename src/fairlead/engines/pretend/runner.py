"""A runner that only pretends: `sleep SECONDS` takes that long and anything else no time. For rehearsals without GPUs.

    ROOT/leases/JOB/NUMBER/   pretended.json  asked

Leases survive a restart of the daemon, and no boot of the machine, as processes do. Their files go the way of those of
other engines: they are archived and removed with their jobs. Times are by the steady clock, which a correction of the
wall clock does not move.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairlead.engines.clock import boot_id, steady_s
from fairlead.engines.leases import Condition, Key, Lease, Look, Sight, lease_from_json
from fairlead.engines.local.files import jobs_in, lease_directory, lease_numbers, read_json
from fairlead.engines.runner import Capabilities, LaunchError
from fairlead.model.errors import InputError
from fairlead.model.handshake import CHECKPOINTED

KIND = "pretended/2"
RECORD, ASKED = "pretended.json", "asked"
OLD_FILE, _OLD_KIND = "pretended.jsonl", "pretended/1"  # all leases of an earlier version, and their stops
_SLEEP = re.compile(r"\s*sleep\s+([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*\Z")


@dataclass(slots=True)
class _Pretended:
    ends_s: float
    boot: str  # of the machine, during which it began
    asked: bool = False

    def code_at(self, now_s: float, boot: str) -> int | None:
        if self.boot != boot:
            return None  # it ended with the machine
        if self.asked:
            return CHECKPOINTED
        return 0 if now_s >= self.ends_s else None


class PretendRunner:
    capabilities = Capabilities()

    def __init__(self, root: Path, clock: Callable[[], float] = steady_s, boot: str | None = None) -> None:
        self._root = root
        self._clock = clock
        self._boot = boot_id() if boot is None else boot
        self._seen: dict[Key, _Pretended] = {}  # leases of the last look, and those that were launched since
        _convert(root)

    def launch(self, lease: Lease) -> None:
        directory = lease_directory(self._root, lease.key)
        if (directory / RECORD).exists():
            raise LaunchError(f"lease {lease.number} of job {lease.job} was launched before")
        sleep = _SLEEP.match(lease.command.run)
        ends_s = self._clock() + (float(sleep[1]) if sleep else 0.0)
        _write(directory, {"lease": asdict(lease), "ends_s": ends_s, "boot": self._boot})
        self._seen[lease.key] = _Pretended(ends_s, self._boot)

    def ask_to_stop(self, lease: Lease) -> bool:
        """Stop the lease at once."""
        self._end(lease.key)
        return self._find(lease.key) is not None

    def kill(self, lease: Lease) -> None:
        self._end(lease.key)

    def look(self, leases: Sequence[Key]) -> Look:
        now_s = self._clock()
        found = {key: self._find(key) for key in leases}
        self._seen = {key: pretended for key, pretended in found.items() if pretended is not None}
        return Look({key: self._sight(pretended, now_s) for key, pretended in found.items()})

    def recall(self, key: Key) -> Lease | None:
        record = _read(self._root, key)
        return None if record is None else lease_from_json(record["lease"])

    def jobs(self) -> Collection[str]:
        return jobs_in(self._root)

    def numbers(self, job: str) -> Sequence[int]:
        return [number for number in lease_numbers(self._root, job) if self._find((job, number)) is not None]

    def revoke(self, key: Key) -> bool:
        return self._find(key) is None

    def _sight(self, pretended: _Pretended | None, now_s: float) -> Sight:
        if pretended is None:
            return Sight(Condition.NEVER_CLAIMED)
        if pretended.boot != self._boot:
            return Sight(Condition.VANISHED, asked=pretended.asked)
        code = pretended.code_at(now_s, self._boot)
        return Sight(Condition.RUNNING) if code is None else Sight(Condition.ENDED, code, asked=pretended.asked)

    def _find(self, key: Key) -> _Pretended | None:
        return self._seen.get(key) or _pretended(self._root, key)

    def _end(self, key: Key) -> None:
        pretended = self._find(key)
        if pretended is not None and pretended.code_at(self._clock(), self._boot) is None:
            (lease_directory(self._root, key) / ASKED).write_text(f"{self._clock()}\n", encoding="ascii")
            pretended.asked = True


class PretendReader:
    """Exit codes of pretended leases, for processes that run none; they write no log."""

    def __init__(self, root: Path, clock: Callable[[], float] = steady_s, boot: str | None = None) -> None:
        self._root = root
        self._clock = clock
        self._boot = boot_id() if boot is None else boot

    def read_log(self, key: Key, offset: int, most: int) -> bytes:
        return b""

    def jobs(self) -> Collection[str]:
        return jobs_in(self._root)

    def exit_code(self, key: Key) -> int | None:
        pretended = _pretended(self._root, key)
        return None if pretended is None else pretended.code_at(self._clock(), self._boot)


def _pretended(root: Path, key: Key) -> _Pretended | None:
    record = _read(root, key)
    if record is None:
        return None
    return _Pretended(record["ends_s"], record["boot"], (lease_directory(root, key) / ASKED).exists())


def _read(root: Path, key: Key) -> dict[str, Any] | None:
    """The record of a lease; None if it was not launched."""
    record = read_json(lease_directory(root, key) / RECORD)
    return record if isinstance(record, dict) and record.get("fairlead") == KIND else None


def _write(directory: Path, record: dict[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    draft = directory / f"{RECORD}.draft"
    draft.write_text(json.dumps({"fairlead": KIND, **record}), encoding="utf-8")
    draft.rename(directory / RECORD)


def _convert(root: Path) -> None:
    """Give each lease of an earlier version files of its own. If this is interrupted, the next start repeats it."""
    path = root / OLD_FILE
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]  # ignores an incomplete last line
    lines = [json.loads(line) for line in whole.splitlines()]
    if lines and lines[0].get("fairlead") != _OLD_KIND:
        raise InputError(
            f'{path} does not begin with {{"fairlead": "{_OLD_KIND}"}}; choose another state directory with --state'
        )
    for record in lines[1:]:
        if "lease" in record:
            directory = lease_directory(root, (record["lease"]["job"], record["lease"]["number"]))
            _write(directory, {"boot": "", **record})
        elif "stop" in record:
            (lease_directory(root, (record["stop"][0], record["stop"][1])) / ASKED).touch()
    path.unlink()
