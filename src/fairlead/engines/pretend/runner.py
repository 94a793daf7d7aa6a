"""A runner that only pretends: `sleep SECONDS` takes that long and anything else no time. For rehearsals without GPUs.

What was started and stopped stands in one file of JSON lines, so that it survives a restart of the daemon like processes do.
"""

from __future__ import annotations

import json
import re
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
_SLEEP = re.compile(r"\s*sleep\s+([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*\Z")


@dataclass(slots=True)
class _Pretended:
    lease: Lease
    ends_s: float
    asked: bool = False


class PretendRunner:
    capabilities = Capabilities()

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._leases: dict[Key, _Pretended] = {}
        found = path.read_bytes() if path.exists() else b""
        whole = found[: found.rfind(b"\n") + 1]  # a line that was cut off never began
        lines = [json.loads(line) for line in whole.splitlines()]
        if lines and lines[0].get("fairlead") != KIND:
            raise InputError(
                f'{path} does not begin with {{"fairlead": "{KIND}"}}; choose another state directory with --state'
            )
        for said in lines[1:]:
            self._read(said)
        self._file = path.open("ab")
        self._file.truncate(len(whole))
        if not lines:
            self._write({"fairlead": KIND})

    def launch(self, lease: Lease) -> None:
        if lease.key in self._leases:
            raise LaunchError(f"lease {lease.number} of job {lease.job} was launched before")
        found = _SLEEP.match(lease.command.run)
        ends_s = self._clock() + (float(found[1]) if found else 0.0)
        self._leases[lease.key] = _Pretended(lease, ends_s)
        self._write({"lease": asdict(lease), "ends_s": ends_s})

    def ask_to_stop(self, lease: Lease) -> bool:
        """It obeys at once."""
        self._end(lease.key)
        return True

    def kill(self, lease: Lease) -> None:
        self._end(lease.key)

    def look(self, leases: Sequence[Key]) -> Look:
        now_s = self._clock()
        return Look({key: self._sight(key, now_s) for key in leases})

    def recall(self, key: Key) -> Lease | None:
        return self._leases[key].lease if key in self._leases else None

    def revoke(self, key: Key) -> bool:
        return key not in self._leases

    def close(self) -> None:
        self._file.close()

    def _sight(self, key: Key, now_s: float) -> Sight:
        known = self._leases.get(key)
        if known is None:
            return Sight(Condition.NEVER_CLAIMED)
        if known.asked:
            return Sight(Condition.ENDED, CHECKPOINTED, asked=True)
        return Sight(Condition.ENDED, 0) if now_s >= known.ends_s else Sight(Condition.RUNNING)

    def _end(self, key: Key) -> None:
        known = self._leases[key]
        if not known.asked and self._clock() < known.ends_s:
            known.asked = True
            self._write({"stop": list(key), "at_s": self._clock()})

    def _write(self, what: dict[str, Any]) -> None:
        self._file.write(json.dumps(what).encode() + b"\n")
        self._file.flush()

    def _read(self, said: dict[str, Any]) -> None:
        if "stop" in said:
            job, number = said["stop"]
            self._leases[job, number].asked = True
            return
        lease = lease_from_json(said["lease"])
        self._leases[lease.key] = _Pretended(lease, said["ends_s"])
