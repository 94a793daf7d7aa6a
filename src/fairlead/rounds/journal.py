"""The journal: JSON lines, one record per event and decision, written before it takes effect.

The header holds all that a replay needs: cluster, profile, policy with parameters, settings, seed, hashes, versions.
Jobs are named by id, nodes by name. It contains no timings: the same seed gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numpy as np

from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Decision
from fairlead.model.errors import InputError
from fairlead.rates.iteration import Links, Parts
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.rounds.records import Record, Records, to_line

_T = TypeVar("_T")

KIND = "journal/2"
CARRIES_MEMORY = "carries_memory"  # in `more`: the journal begins in the middle of a run, whose policy remembers more
SNAPSHOT = "snapshot/1"  # the first line of a journal that begins from a state, alone
_READABLE = ("journal/1", KIND, SNAPSHOT)  # the first had no reasons


@dataclass(frozen=True)
class Header:
    """What was run. `more` may hold anything: trace hash, world, versions; `begins` is the initial state, if any."""

    cluster: Cluster
    profile: Profile
    restart_s: float | None
    policy: str
    parameters: dict[str, Any]
    settings: dict[str, Any]
    tenant_weight: dict[str, float]
    more: dict[str, Any]


class NoJournal:
    """A journal that discards everything."""

    def event(self, event: ev.Event) -> None:
        pass

    def decision(self, decision: Decision) -> None:
        pass


class JournalWriter:
    """Appends to an open text file, which the caller closes."""

    def __init__(self, file: IO[str], header: Header) -> None:
        self._file = file
        self._records = Records(header.cluster, _known_jobs(header))
        self._file.write(to_line(header_to_json(header)) + "\n")

    def event(self, event: ev.Event) -> None:
        self._file.write(self._records.to_line(event) + "\n")

    def decision(self, decision: Decision) -> None:
        self._file.write(self._records.to_line(decision) + "\n")
        self._file.flush()


@dataclass(frozen=True)
class JournalReader:
    """Header and records of a journal file, compressed or not. An incomplete last line is ignored."""

    path: Path

    def header(self) -> Header:
        with open_journal(self.path) as file:
            return self._parse(1, file.readline(), header_from_json)

    def records(self) -> Iterator[Record]:
        header = self.header()
        records = Records(header.cluster, _known_jobs(header))
        with open_journal(self.path) as file:
            next(file)
            for number, line in enumerate(file, start=2):
                if not line.endswith("\n"):
                    return
                yield self._parse(number, line, records.from_json)

    def _parse(self, number: int, line: str, build: Callable[[dict[str, Any]], _T]) -> _T:
        try:
            return build(json.loads(line))
        except InputError as error:
            raise error.at(str(self.path), number) from None
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            what = f"{type(error).__name__}: {error}"
            raise InputError(
                f"not a journal record ({what}); is this a file that --journal wrote?", path=str(self.path), line=number
            ) from None


@contextmanager
def open_journal(path: Path) -> Iterator[IO[str]]:
    """The text of a journal file, compressed by gzip if its first bytes say so. InputError: it is cut off or damaged."""
    with path.open("rb") as start:
        compressed = start.read(2) == b"\x1f\x8b"
    try:
        with (gzip.open if compressed else open)(path, "rt", encoding="utf-8", errors="replace") as file:
            yield cast(IO[str], file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"cannot be decompressed ({error}); copy the file again", path=str(path)) from None


def is_snapshot(path: Path) -> bool:
    """Whether a file is a snapshot: the state of a service at one time, without any records."""
    with open_journal(path) as file:
        return file.readline(200).startswith(f'{{"fairlead":"{SNAPSHOT}"')


def _known_jobs(header: Header) -> list[str]:
    """Ids of the jobs in the initial state of the run; see `rounds/beginning.py`."""
    return [row["job"]["id"] for row in header.more.get("begins", {}).get("jobs", ())]


def header_to_json(header: Header) -> dict[str, Any]:
    profile = header.profile
    return {
        "fairlead": KIND,
        "policy": header.policy,
        "parameters": header.parameters,
        "settings": header.settings,
        "tenant_weight": header.tenant_weight,
        "restart_s": header.restart_s,
        **header.more,
        "cluster": cluster_to_json(header.cluster),
        "profile": {
            "name": profile.name,
            "facts": {model: asdict(facts) for model, facts in profile.facts.items()},
            "speeds": [[getattr(row, f.name) for f in fields(Speed)] for row in profile.speeds],
            **_formula_to_json(profile),
        },
    }


def cluster_to_json(cluster: Cluster) -> dict[str, Any]:
    return {
        "types": cluster.types,
        "gpu": cluster.gpu,
        "memory_gib": cluster.memory_gib.tolist(),
        "nodes": cluster.nodes,
        "node_type": cluster.node_type.tolist(),
        "node_gpus": cluster.node_gpus.tolist(),
    }


def cluster_from_json(record: dict[str, Any]) -> Cluster:
    return Cluster(
        types=tuple(record["types"]),
        gpu=tuple(record["gpu"]),
        memory_gib=np.array(record["memory_gib"], dtype=np.float64),
        nodes=tuple(record["nodes"]),
        node_type=np.array(record["node_type"], dtype=np.int64),
        node_gpus=np.array(record["node_gpus"], dtype=np.int64),
    )


def _formula_to_json(profile: Profile) -> dict[str, Any]:
    """The profile's parts and links; empty if it has none, so that journals of such profiles do not change."""
    if not profile.parts:
        return {}
    return {
        "parts": [[model, gpu, asdict(parts)] for (model, gpu), parts in profile.parts.items()],
        "links": {gpu: asdict(links) for gpu, links in profile.links.items()},
    }


def header_from_json(record: dict[str, Any]) -> Header:
    if record.get("fairlead") not in _READABLE:
        raise ValueError(f"the first line has the format {record.get('fairlead')!r}; expected {KIND!r}")
    cluster, profile = record.pop("cluster"), record.pop("profile")
    known = ("policy", "parameters", "settings", "tenant_weight", "restart_s")
    return Header(
        cluster=cluster_from_json(cluster),
        profile=Profile(
            profile["name"],
            tuple(Speed(*row) for row in profile["speeds"]),
            {model: ModelFacts(**facts) for model, facts in profile["facts"].items()},
            {(model, gpu): Parts(**parts) for model, gpu, parts in profile.get("parts", ())},
            {gpu: Links(**links) for gpu, links in profile.get("links", {}).items()},
        ),
        **{name: record[name] for name in known},
        more={key: value for key, value in record.items() if key not in (*known, "fairlead")},
    )
