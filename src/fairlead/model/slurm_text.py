"""Slurm's notation for lists of hosts, amounts of GPUs and durations, as its commands print them.

Every version prints a little differently, so these functions accept what any of them prints; what they do not
understand is None or left out, never an exception, except for host lists, where a wrong guess would name other machines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fairlead.model.errors import InputError

_MOST_HOSTS = 1_000_000
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")
_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
# gpu, gpu:4, gpu:v100:4, gres:gpu:v100:4, gres/gpu:v100=4, gpu:v100:2(IDX:0-1), gpu:v100:4(S:0-1)
_GPUS = re.compile(
    r"(?:gres[:/])?gpu(?:[:/]([^:=(,]+?))??(?:[:=](\d+)([KkMm])?)?(?:\([^)]*\))?\Z"
)  # type, count, multiple
_DURATION = re.compile(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)(?:\.\d+)?\Z")


def expand_hosts(text: str, line: int = 1) -> Iterator[str]:
    """`gpu[01-03,7],login1` -> gpu01 gpu02 gpu03 gpu7 login1."""
    for part in _OUTSIDE_BRACKETS.split(text):
        yield from _expand_one(part.strip(), line)


def compress_hosts(hosts: Sequence[str]) -> str:
    """The shortest list in Slurm's notation that `expand_hosts` reads as these hosts, in this order."""
    runs: list[list[str]] = []
    for host in hosts:
        if runs and _follows(runs[-1][-1], host):
            runs[-1].append(host)
        else:
            runs.append([host])
    return ",".join(_run(run) for run in runs)


def _follows(before: str, host: str) -> bool:
    (prefix, first), (other, second) = _numbered(before), _numbered(host)
    return bool(first and second) and (prefix, len(first)) == (other, len(second)) and int(second) == int(first) + 1


def _run(hosts: list[str]) -> str:
    prefix, first = _numbered(hosts[0])
    return hosts[0] if len(hosts) == 1 else f"{prefix}[{first}-{_numbered(hosts[-1])[1]}]"


def _numbered(host: str) -> tuple[str, str]:
    prefix = host.rstrip("0123456789")
    return prefix, host[len(prefix) :]


def _expand_one(host: str, line: int) -> Iterator[str]:
    before, bracket, rest = host.partition("[")
    if not bracket:
        yield host
        return
    inside, _, after = rest.partition("]")
    for item in inside.split(","):
        first, _, last = item.partition("-")
        try:
            numbers = range(int(first), int(last or first) + 1)
        except ValueError:
            raise InputError(
                f'node list "{host}" is not understood; wanted, for example, gpu[01-04,7]', path="", line=line
            ) from None
        if not 0 < len(numbers) <= _MOST_HOSTS:
            raise InputError(f'node list "{host}" names {len(numbers)} nodes', path="", line=line)
        for number in numbers:
            for tail in _expand_one(after, line):
                yield f"{before}{number:0{len(first)}d}{tail}"


def gpus_by_type(text: str) -> dict[str, int]:
    """`gpu:v100:4(S:0-1),gpu:k80:2` -> {v100: 4, k80: 2}; GPUs without a type are under "". Anything else is left out.

    Slurm lists GPUs by type and often again as a sum, which then is left out.
    """
    counts: dict[str, int] = {}
    for part in _OUTSIDE_PARENTHESES.split(text):
        match = _GPUS.match(part.strip())
        if match is not None:
            type_, count = match[1] or "", int(match[2] or 1)
            counts[type_] = counts.get(type_, 0) + count * _MULTIPLES[(match[3] or "").lower()]
    typed = sum(count for type_, count in counts.items() if type_)
    if typed and counts.get("", 0) == typed:
        del counts[""]
    return counts


_MULTIPLES = {"": 1, "k": 1024, "m": 1024**2}


def duration_s(text: str) -> float | None:
    """`1-02:03:04`, `02:03:04`, `03:04` or `04` in seconds; None for UNLIMITED, INVALID, N/A and the like."""
    match = _DURATION.match(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
