"""Clusters from machine lists of other systems, recognised by their content:

    openb  sn,cpu_milli,memory_mib,gpu,model                       Alibaba v2023 openb_node_list_*.csv
    pai    machine,gpu_type,cap_cpu,cap_mem,cap_gpu                Alibaba PAI v2020 pai_machine_spec.csv, no column names
    sinfo  a table with NODELIST and GRES, or sinfo --json         sinfo -N -o "%N|%G"

Nodes without GPUs are left out. Nodes with the same GPUs become one group. Those of Slurm keep their names, which engines
need; a node with two types of GPU becomes two nodes, of which the second is called `HOST+TYPE`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from fairlead.model.cluster import Cluster, NodeGroup, build_cluster
from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.model.slurm_text import expand_hosts
from fairlead.model.words import counted
from fairlead.traces.files import read_text
from fairlead.traces.importers.alibaba import alibaba_gpu
from fairlead.traces.importers.rows import csv_lines, csv_records, whole

Aliases = Mapping[str, str]
_Machine = tuple[int, str, int, str]  # line, our name of the GPU type, GPUs, host name or "" if it is of no interest

_OPENB = ("sn", "gpu", "model")
_PAI = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
_PAI_LINE = re.compile(r"\w+,(CPU|T4|P100|V100|V100M32|MISC),[\d.]+,[\d.]+,[\d.]+\s*\Z")
_GRES_GPU = re.compile(r"gpu(?::([^:(,]+))??:(\d+)(?:\([^)]*\))?\Z")


@dataclass(frozen=True, slots=True)
class MachineList:
    """One kind of machine list: functions that recognise its text and read its machines."""

    name: str
    detect: Callable[[str], bool]
    machines: Callable[[str, Aliases], Iterator[_Machine]]


def find_machine_list(text: str) -> MachineList | None:
    return next((kind for kind in MACHINE_LISTS if kind.detect(text)), None)


def parse_machines(text: str, path: str, kind: MachineList, aliases: Aliases | None = None) -> Cluster:
    """The cluster of a machine list, its groups in the order of their first nodes in the list."""
    hosts: dict[tuple[str, int], list[str]] = {}
    lines: dict[tuple[str, int], int] = {}
    try:
        for line, gpu, gpus, host in kind.machines(text, aliases or {}):
            if gpus:
                hosts.setdefault((gpu, gpus), []).append(host)
                lines.setdefault((gpu, gpus), line)
    except InputError as error:
        raise error.at(path, error.line) from None
    if not hosts:
        raise InputError(f"lists no node with GPUs (read as {kind.name})", path=path)
    return build_cluster([_group(names, gpu, gpus, path, lines[gpu, gpus]) for (gpu, gpus), names in hosts.items()])


def conversion_notes(path: str, cluster: Cluster, aliases: Aliases | None = None) -> tuple[str, ...]:
    """What was left out of the machine list at `path` and what was assumed; empty for other cluster files."""
    text = read_text(path) if Path(path).is_file() else ""
    kind = find_machine_list(text) if text else None
    if kind is None:
        return ()
    without = sum(gpus == 0 for _, _, gpus, _ in kind.machines(text, aliases or {}))
    left_out = (f"left out: {counted(without, 'node')} without GPUs",) if without else ()
    memory = ", ".join(f"{t} {gib:g} GiB" for t, gib in zip(cluster.types, cluster.memory_gib.tolist(), strict=True))
    return (
        *left_out,
        f"memory is assumed to be that of the common card of each type: {memory}; change memory_gib if it is not",
    )


def _group(hosts: Sequence[str], gpu: str, gpus: int, path: str, line: int) -> NodeGroup:
    try:
        return NodeGroup(len(hosts), gpu, gpus, hosts=tuple(hosts) if all(hosts) else ())
    except InputError as error:
        message = f"{error.message.partition(';')[0]}; map it to a known type with --alias {gpu}=v100"
        raise InputError(message, path=path, line=line) from None


def _openb(text: str, aliases: Aliases) -> Iterator[_Machine]:
    for line, record in csv_records(StringIO(text), _OPENB):
        if isinstance(record, InputError):
            raise InputError(record.message, path="", line=line)
        yield _machine(line, record["model"], record, "gpu", aliases)


def _pai(text: str, aliases: Aliases) -> Iterator[_Machine]:
    for line, cells in csv_lines(StringIO(text)):
        if isinstance(cells, InputError) or len(cells) != len(_PAI):
            raise InputError(f"is not a machine of PAI; wanted {','.join(_PAI)}", path="", line=line)
        if cells[0] != _PAI[0]:
            yield _machine(line, cells[1], dict(zip(_PAI, cells, strict=True)), "cap_gpu", aliases)


def _machine(line: int, model: str, record: Mapping[str, str], column: str, aliases: Aliases) -> _Machine:
    try:
        gpus = whole(record, column)
        if gpus < 0:
            raise InputError(f"{column} is {gpus}; wanted a whole number of GPUs")
        return line, alibaba_gpu(model, aliases) if gpus else "", gpus, ""
    except InputError as error:
        raise error.at("", line) from None


def _sinfo(text: str, aliases: Aliases) -> Iterator[_Machine]:
    listed: set[str] = set()
    for line, names, gres in _sinfo_json(text) if text.lstrip().startswith("{") else _sinfo_table(text):
        gpus = list(_gres_gpus(gres, aliases, line))
        for name in names:
            if name not in listed:  # a node is listed once per partition
                listed.add(name)
                for number, (gpu, count) in enumerate(gpus or [("", 0)]):
                    yield line, gpu, count, f"{name}+{gpu}" if number else name


def _sinfo_table(text: str) -> Iterator[tuple[int, Iterable[str], str]]:
    columns: list[str] = []
    for line, row in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in row.split("|")] if "|" in row else row.split()
        if not cells:
            continue
        if not columns:
            columns = [cell.upper() for cell in cells]
            continue
        if len(cells) != len(columns):
            raise InputError(
                f"has {len(cells)} columns; wanted {len(columns)}: {' '.join(columns)}", path="", line=line
            )
        record = dict(zip(columns, cells, strict=True))
        names = record.get("NODELIST") or record.get("HOSTNAMES") or ""
        yield line, expand_hosts(names, line), record["GRES"]


def _sinfo_json(text: str) -> Iterator[tuple[int, Iterable[str], str]]:
    try:
        document = json.loads(text)
        for entry in document.get("sinfo") or document["nodes"]:
            yield 1, _names(entry), _gres(entry)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"is not JSON of sinfo or scontrol ({error}); wanted nodes with their gres", path="", line=1
        ) from None


def _names(entry: Mapping[str, Any]) -> list[str]:
    return [entry["name"]] if "name" in entry else list(entry["nodes"]["nodes"])


def _gres(entry: Mapping[str, Any]) -> str:
    gres = entry["gres"]
    return str(gres["total"] if isinstance(gres, dict) else gres)


def _gres_gpus(gres: str, aliases: Aliases, line: int) -> Iterator[tuple[str, int]]:
    for part in re.split(r",(?![^(]*\))", gres):
        match = _GRES_GPU.match(part.strip())
        if match is None:
            if part.strip().startswith("gpu"):
                raise InputError(
                    f'GRES "{part}" is not understood; wanted, for example, gpu:a100:4', path="", line=line
                )
            continue
        kind = match[1] or "gpu"
        if match[1] is None and not any(key.lower() == "gpu" for key in aliases):
            raise InputError(f'GRES "{part}" names no type; give it one with --alias gpu=v100', path="", line=line)
        yield canonical_gpu(kind, aliases), int(match[2])


def _is_sinfo(text: str) -> bool:
    if text.lstrip().startswith("{"):
        return '"gres"' in text
    first = next((line for line in text.splitlines() if line.strip()), "").upper()
    return bool(re.search(r"\bGRES\b", first) and re.search(r"\b(NODELIST|HOSTNAMES)\b", first))


MACHINE_LISTS: tuple[MachineList, ...] = (
    MachineList("openb", lambda text: text.startswith("sn,"), _openb),
    MachineList(
        "pai", lambda text: bool(_PAI_LINE.match(text.partition("\n")[0])) or text.startswith(",".join(_PAI)), _pai
    ),
    MachineList("sinfo", _is_sinfo, _sinfo),
)
