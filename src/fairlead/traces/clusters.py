"""Cluster files: `nodes: [{count: 9, gpu: v100, gpus: 4, memory_gib: 16}]`, or the short form `v100:36,p100:36x8`.

    fairlead: cluster/1           # optional, first
    nodes:
      - {count: 9, gpu: v100, gpus: 4}                  # memory_gib from a table by GPU type
      - {count: 2, gpu: a100, gpus: 8, memory_gib: 80, name: dgx}

`count` is 1 if it is left out; nodes are called `<name or gpu>-1`, `-2`, ... Real host names are listed instead of a count,
as in `{hosts: "gpu[01-04,7]", gpu: v100, gpus: 4}`. GPUs may be spelt as drivers spell them.
Machine lists of other systems are read as well: see `traces.machines`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fairlead.model.cluster import Cluster, NodeGroup, build_cluster, parse_short_form
from fairlead.model.errors import InputError
from fairlead.model.gpus import MEMORY_GIB, canonical_gpu
from fairlead.model.slurm_text import compress_hosts, expand_hosts
from fairlead.traces.files import create_text, read_text
from fairlead.traces.machines import find_machine_list, parse_machines
from fairlead.traces.marked_yaml import Marked, check_kind, parse_yaml

KIND = "cluster/1"
_GROUP_KEYS = ("count", "gpu", "gpus", "memory_gib", "name", "hosts")
_SHORT_FORM = re.compile(r"[^:/\\]+:[^/\\]*\Z")
_NODE_NAME = re.compile(r"(.*)-([1-9]\d*)\Z", re.DOTALL)


def read_cluster(text_or_path: str | Path, aliases: Mapping[str, str] | None = None) -> Cluster:
    """The cluster in a file or, if no such file exists, of the short form.

    `aliases` map spellings of GPU names to types and take precedence over the built-in table.
    """
    text = str(text_or_path)
    if Path(text).exists():
        return parse_cluster(read_text(text), text, aliases)
    if _SHORT_FORM.match(text):
        return _from_short_form(text, aliases or {})
    near = f'; did you mean "{text.lower()}:8"?' if text.lower() in MEMORY_GIB else ""
    raise InputError(
        "no such file; wanted a cluster file, or GPUs by type as in v100:8 or v100:36,p100:36x8 (36 in nodes of 8)"
        + near,
        path=text,
    )


def parse_cluster(text: str, path: str, aliases: Mapping[str, str] | None = None) -> Cluster:
    machine_list = find_machine_list(text)
    if machine_list is not None:
        return parse_machines(text, path, machine_list, aliases)
    document = parse_yaml(text, path, "a cluster file")
    fields = document.mapping(("fairlead", "nodes"))
    check_kind(fields, KIND)
    if "nodes" not in fields:
        raise document.error("has no nodes; wanted nodes: [{count: 2, gpu: v100, gpus: 4}]")
    groups = [_group(item, aliases or {}) for item in fields["nodes"].items()]
    try:
        return build_cluster(groups)
    except InputError as error:
        raise error.at(path, fields["nodes"].line) from None


def write_cluster(cluster: Cluster, path: str | Path) -> None:
    """Write a file that reads back as the same cluster."""
    with create_text(path) as file:
        file.write(format_cluster(cluster))


def format_cluster(cluster: Cluster) -> str:
    lines = [f"fairlead: {KIND}", "nodes:"]
    for group in groups_of(cluster):
        name = "" if group.name is None else f", name: {_quoted(group.name)}"
        which = f"hosts: {_quoted(compress_hosts(group.hosts))}" if group.hosts else f"count: {group.count}"
        lines.append(
            f"  - {{{which}, gpu: {_quoted(group.gpu)}, gpus: {group.gpus}, memory_gib: {group.memory!r}{name}}}"
        )
    return "\n".join(lines) + "\n"


def groups_of(cluster: Cluster) -> Sequence[NodeGroup]:
    """The cluster as input of `build_cluster`: runs of equal nodes that are numbered from 1, or else listed by name."""
    groups: list[NodeGroup] = []
    used: dict[str, int] = {}  # numbers by prefix
    for label, type_, gpus in zip(cluster.nodes, cluster.node_type.tolist(), cluster.node_gpus.tolist(), strict=True):
        prefix, number = _split_name(label)
        kind = (cluster.gpu[type_], gpus, float(cluster.memory_gib[type_]))
        if number == used.get(prefix, 0) + 1:
            used[prefix] = number
            new = NodeGroup(1, *kind, None if prefix == cluster.types[type_] else prefix)
        else:
            new = NodeGroup(1, *kind, hosts=(label,))
        old = groups[-1] if groups else None
        if old is not None and (*kind, new.name, not new.hosts) == (*_kind(old), old.name, not old.hosts):
            groups[-1] = replace(old, count=old.count + 1, hosts=old.hosts + new.hosts)
        else:
            groups.append(new)
    return groups


def _kind(group: NodeGroup) -> tuple[str, int, float]:
    return group.gpu, group.gpus, group.memory


def _from_short_form(text: str, aliases: Mapping[str, str]) -> Cluster:
    try:
        parts = (part.partition(":") for part in text.split(","))
        return parse_short_form(",".join(f"{canonical_gpu(gpu, aliases)}{colon}{rest}" for gpu, colon, rest in parts))
    except InputError as error:
        raise error if error.message.startswith("cluster ") else error.at(f'cluster "{text}"') from None


def _group(item: Marked, aliases: Mapping[str, str]) -> NodeGroup:
    fields = item.mapping(_GROUP_KEYS)
    missing = [key for key in ("gpu", "gpus") if key not in fields]
    if missing:
        raise item.error(
            f"{item.name} has no {' and no '.join(missing)}; wanted, for example, {{count: 2, gpu: v100, gpus: 4}}"
        )
    memory = fields.get("memory_gib")
    name = fields.get("name")
    try:
        hosts = tuple(expand_hosts(fields["hosts"].text())) if "hosts" in fields else ()
        return NodeGroup(
            count=fields["count"].whole() if "count" in fields else len(hosts) or 1,
            gpu=canonical_gpu(fields["gpu"].text(), aliases),
            gpus=fields["gpus"].whole(),
            memory_gib=None if memory is None else memory.number(),
            name=None if name is None else name.text(),
            hosts=hosts,
        )
    except InputError as error:
        raise error if error.path else error.at(item.path, _line_of(fields, error, item)) from None


def _line_of(fields: dict[str, Marked], error: InputError, item: Marked) -> int:
    """The line of the field with whose name the message begins, or else of the item."""
    named = fields.get(error.message.partition(" ")[0])
    if named is None and ("GPU type" in error.message):
        named = fields["gpu"]
    return (named or item).line


def _split_name(label: str) -> tuple[str, int]:
    match = _NODE_NAME.match(label)
    return (match[1], int(match[2])) if match else (label, 0)


def _quoted(word: str) -> str:
    """The word in quotes if it needs them: names such as 3090 or 1e5 must not read back as numbers."""
    return (
        word if re.fullmatch(r"[a-z][a-z0-9._-]*", word) else '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )
