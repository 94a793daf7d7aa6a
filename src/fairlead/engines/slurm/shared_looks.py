"""The last look at a steered partition, in a file: the process that takes over jobs need not ask Slurm the same again.

The scheduler's process looks at Slurm, and overwrites the file each time. A reader wants a look that began after something
else was read, so the time counts by the monotonic clock, which all processes of a machine share. The file is a copy that
nobody misses: without a look that is new enough the reader asks Slurm itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.engines.slurm.machines import SlurmNode
from fairlead.engines.slurm.queue import SlurmJob

NAME = "slurm-look.json"  # in the state directory


@dataclass(frozen=True, slots=True)
class SharedLook:
    began_s: float  # by the monotonic clock
    jobs: Mapping[str, SlurmJob]  # of the partition, by Slurm's id
    nodes: Mapping[str, SlurmNode]  # all of them, by name


def write_look(path: Path, partition: str, look: SharedLook) -> None:
    """Replace the last look. A disk that is full leaves no look behind, at most an old one."""
    record = {
        "partition": partition,
        "began_s": look.began_s,
        "jobs": [_values(job) for job in look.jobs.values()],
        "nodes": [_values(node) for node in look.nodes.values()],
    }
    draft = path.with_suffix(".draft")
    with suppress(OSError):
        draft.touch(0o600)
        draft.write_text(json.dumps(record, separators=(",", ":")))
        draft.replace(path)


class LookReader:
    """Reads the looks at one partition. A file that has not changed is not read again."""

    def __init__(self, path: Path, partition: str) -> None:
        self._path, self._partition = path, partition
        self._read_ns = 0  # when the file that was read last was written
        self._last: SharedLook | None = None

    def look_after(self, time_s: float) -> SharedLook | None:
        """The last look, if it began after this time."""
        try:
            written_ns = self._path.stat().st_mtime_ns
        except OSError:
            return None
        if written_ns != self._read_ns:
            self._read_ns, self._last = written_ns, self._read()
        # The clock begins with the start of the machine, so that an older file may seem to be of the future.
        valid = self._last is not None and time_s < self._last.began_s <= time.monotonic()
        return self._last if valid else None

    def _read(self) -> SharedLook | None:
        try:
            record = json.loads(self._path.read_text())
            if record["partition"] != self._partition:
                return None
            jobs = [SlurmJob(*row) for row in record["jobs"]]
            nodes = [_node(row) for row in record["nodes"]]
            return SharedLook(
                float(record["began_s"]), {job.id: job for job in jobs}, {node.name: node for node in nodes}
            )
        except (OSError, ValueError, TypeError, LookupError):
            return None


def _values(row: SlurmJob | SlurmNode) -> list[Any]:
    """The values in the order of the fields; JSON knows neither sets nor tuples."""
    values = (getattr(row, name) for name in type(row).__slots__)
    return [list(value) if isinstance(value, frozenset) else value for value in values]


def _node(row: Iterable[Any]) -> SlurmNode:
    name, address, states, gpus, used, partitions, reason = row
    return SlurmNode(name, address, frozenset(states), gpus, used, tuple(partitions), reason)
