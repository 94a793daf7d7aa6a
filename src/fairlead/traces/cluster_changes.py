"""Files of cluster changes: CSV with the columns time, change, node, gpu, gpus, memory_gib.

    time,change,node,gpu,gpus,memory_gib
    2h,add,new-1,a100,8,
    1d,usable,new-1,,4,
    3d,remove,v100-1,,,

Times are durations from the start of the trace, in seconds unless a unit says otherwise. `add` needs gpu and gpus, and
memory_gib where the GPU's memory is not known or not the usual one; `usable` needs gpus; `remove` needs neither. The
same node may be removed and added again, with other GPUs.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping

from fairlead.model.changes import Change, ChangeKind
from fairlead.model.cluster import NodeGroup
from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.model.units import parse_duration
from fairlead.model.words import choose
from fairlead.traces.files import read_text

_NEEDED = ("time", "change", "node")
_COLUMNS = (*_NEEDED, "gpu", "gpus", "memory_gib")


def read_changes(path: str, aliases: Mapping[str, str] | None = None) -> tuple[Change, ...]:
    """The changes in a file; `aliases` map spellings of GPU names to types, as for cluster files."""
    reader = csv.DictReader(read_text(path).splitlines(), skipinitialspace=True)
    columns = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = columns
    if not set(_NEEDED) <= set(columns) <= set(_COLUMNS):
        raise InputError(f"the columns are {', '.join(columns)}; wanted {', '.join(_COLUMNS)}", path=path, line=1)
    changes = []
    for row in reader:
        try:
            changes.append(_change({name: (row.get(name) or "").strip() for name in _COLUMNS}, aliases or {}))
        except InputError as error:
            raise error.at(path, reader.line_num) from None
    return tuple(changes)


def _change(row: Mapping[str, str], aliases: Mapping[str, str]) -> Change:
    kind = ChangeKind(choose("change", row["change"], ChangeKind))
    time_s = parse_duration(row["time"])
    if not row["node"]:
        raise InputError("the node has no name")
    if kind is ChangeKind.ADD:
        gpu = canonical_gpu(aliases.get(row["gpu"], row["gpu"]))
        memory = None if not row["memory_gib"] else _number("memory_gib", row["memory_gib"])
        return Change(time_s, kind, row["node"], NodeGroup(1, gpu, _whole(row["gpus"]), memory))
    return Change(time_s, kind, row["node"], usable=_whole(row["gpus"]) if kind is ChangeKind.USABLE else 0)


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise InputError(f'gpus is "{text}"; wanted a whole number of GPUs')
    return int(text)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f'{name} is "{text}"; wanted a number') from None
