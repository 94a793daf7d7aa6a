"""A runner that only pretends: `sleep SECONDS` takes that long and anything else no time. For rehearsals without GPUs.

Starts and stops are kept in a file of JSON lines, so that leases survive a restart of the daemon as processes do.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairlead.engines.leases import Condition, Key, Lease, Look, Sight, lease_from_json
from fairlead.engines.runner import Capabilities, LaunchError
from fairlead.model.errors import InputError
from fairlead.model.handshake import CHECKPOINTED

KIND = "pretended/1"
FILE = "pretended.jsonl"  # in the state directory
_SLEEP = re.compile(r"\s*sleep\s+([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*\Z")


@dataclass(slots=True)
class _Pretended:
    ends_s: float
    asked: bool = False

    def code_at(self, now_s: float) -> int | None:
        if self.asked:
            return CHECKPOINTED
        return 0 if now_s >= self.ends_s else None


class PretendRunner:
    capabilities = Capabilities()

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._launched: dict[Key, Lease] = {}
        self._pretended: dict[Key, _Pretended] = {}
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]  # ignores an incomplete last line
        lines = [json.loads(line) for line in whole.splitlines()]
        if lines and lines[0].get("fairlead") != KIND:
            raise InputError(
                f'{path} does not begin with {{"fairlead": "{KIND}"}}; choose another state directory with --state'
            )
        for record in lines[1:]:
            _take_in(self._pretended, record)
            if "lease" in record:
                lease = lease_from_json(record["lease"])
                self._launched[lease.key] = lease
        self._file = path.open("ab")
        self._file.truncate(len(whole))
        if not lines:
            self._write({"fairlead": KIND})

    def launch(self, lease: Lease) -> None:
        if lease.key in self._pretended:
            raise LaunchError(f"lease {lease.number} of job {lease.job} was launched before")
        sleep = _SLEEP.match(lease.command.run)
        ends_s = self._clock() + (float(sleep[1]) if sleep else 0.0)
        self._launched[lease.key] = lease
        self._pretended[lease.key] = _Pretended(ends_s)
        self._write({"lease": asdict(lease), "ends_s": ends_s})

    def ask_to_stop(self, lease: Lease) -> bool:
        """Stop the lease at once."""
        self._end(lease.key)
        return lease.key in self._pretended

    def kill(self, lease: Lease) -> None:
        self._end(lease.key)

    def look(self, leases: Sequence[Key]) -> Look:
        now_s = self._clock()
        return Look({key: self._sight(key, now_s) for key in leases})

    def recall(self, key: Key) -> Lease | None:
        return self._launched.get(key)

    def revoke(self, key: Key) -> bool:
        return key not in self._pretended

    def close(self) -> None:
        self._file.close()

    def _sight(self, key: Key, now_s: float) -> Sight:
        pretended = self._pretended.get(key)
        if pretended is None:
            return Sight(Condition.NEVER_CLAIMED)
        code = pretended.code_at(now_s)
        return Sight(Condition.RUNNING) if code is None else Sight(Condition.ENDED, code, asked=pretended.asked)

    def _end(self, key: Key) -> None:
        pretended = self._pretended.get(key)
        if pretended is not None and pretended.code_at(self._clock()) is None:
            pretended.asked = True
            self._write({"stop": list(key), "at_s": self._clock()})

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record).encode() + b"\n")
        self._file.flush()


class PretendReader:
    """Exit codes of pretended leases, for processes that run none; they write no log. Reads the file incrementally."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._offset = 0
        self._pretended: dict[Key, _Pretended] = {}
        self._lock = threading.Lock()  # the API answers from several threads

    def read_log(self, key: Key, offset: int, most: int) -> bytes:
        return b""

    def exit_code(self, key: Key) -> int | None:
        with self._lock:
            self._read_on()
            pretended = self._pretended.get(key)
        return None if pretended is None else pretended.code_at(self._clock())

    def _read_on(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            _take_in(self._pretended, json.loads(line))


def _take_in(leases: dict[Key, _Pretended], record: dict[str, Any]) -> None:
    """Apply one line of the file."""
    if "stop" in record:
        job, number = record["stop"]
        leases[job, number].asked = True
    elif "lease" in record:
        leases[record["lease"]["job"], record["lease"]["number"]] = _Pretended(record["ends_s"])
