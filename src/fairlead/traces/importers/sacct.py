"""Slurm's accounting, as text or as JSON:

    sacct -aX --parsable2 --format=JobID,User,Account,State,Submit,Start,ElapsedRaw,AllocTRES,ReqTRES,NodeList,Partition,JobName
    sacct -aX --json

The tenant is the account (else the user). GPUs are those that were allocated, and their type is the one that the job
ran on. A type that the job requested by name is the only one that it may use. Lines of job steps are skipped. With Start
and NodeList the trace also keeps what Slurm did; JobName, last because it may contain anything, can show the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import IO, Any

from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.model.past import Past
from fairlead.model.slurm_text import expand_hosts
from fairlead.traces.importers.json_stream import array_records
from fairlead.traces.importers.rows import (
    NO_GPU,
    NOT_COMPLETED,
    NOT_ENDED,
    LeftOut,
    Options,
    Records,
    Row,
    TraceFormat,
    csv_records,
    number,
    ran_for,
)
from fairlead.traces.importers.times import parse_time

_STEP = LeftOut("a step of a job")
_COMPLETED = "COMPLETED"
_ENDED = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        _COMPLETED,
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
_NODES = re.compile(r"(?:^|,)node=(\d+)")
_TRES = re.compile(r"(?:^|,)gres/gpu(?::([^=,]+))?=(\d+)")
_ELAPSED = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)\Z")

_Gpus = list[tuple[str, int]]  # (type or "", count)


def text_records(file: IO[str], options: Options) -> Records:
    return csv_records(
        file, ("JobID", "State", "Submit", "AllocTRES"), delimiter="|", quoted=False, free_text="JobName"
    )


def text_row(line: int, record: Mapping[str, str], options: Options) -> Row | LeftOut:
    if "." in record["JobID"]:
        return _STEP
    state = record["State"].partition(" ")[0]
    if state not in _ENDED:
        return NOT_ENDED
    return _row(
        options,
        job=record["JobID"],
        tenant=record.get("Account") or record.get("User"),
        state=state,
        submit_s=parse_time(record["Submit"], options.timezone),
        elapsed_s=_elapsed_s(record),
        allocated=_gpus(record["AllocTRES"]),
        requested=_gpus(record.get("ReqTRES", "")),
        nodes=int(match[1]) if (match := _NODES.search(record["AllocTRES"])) else None,
        start=record.get("Start", ""),
        hosts=record.get("NodeList", ""),
        name=record.get("JobName", ""),
        partition=record.get("Partition", ""),
    )


def json_records(file: IO[str], options: Options) -> Records:
    return array_records(file, r'"jobs"\s*:\s*\[')


def json_row(line: int, record: Any, options: Options) -> Row | LeftOut:
    try:
        states = record["state"]["current"]
        time, tres = record["time"], record["tres"]
        state = states if isinstance(states, str) else states[0]
        if state not in _ENDED:
            return NOT_ENDED
        return _row(
            options,
            job=str(int(record["job_id"])),
            tenant=record.get("account") or record.get("user"),
            state=state,
            submit_s=_plain(time["submission"]),
            elapsed_s=_plain(time["elapsed"]),
            allocated=_json_gpus(tres["allocated"]),
            requested=_json_gpus(tres.get("requested", ())),
            nodes=next(
                (int(_plain(entry["count"])) for entry in tres["allocated"] if entry.get("type") == "node"), None
            ),
            start=_plain(time["start"]) if "start" in time else "",
            hosts=record.get("nodes") or "",
            name=record.get("name") or "",
            partition=record.get("partition") or "",
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"is not a job of sacct --json ({reason}); wanted job_id, state, time and tres") from None


def _row(
    options: Options,
    *,
    job: str,
    tenant: str | None,
    state: str,
    submit_s: float,
    elapsed_s: float,
    allocated: _Gpus,
    requested: _Gpus,
    nodes: int | None,
    start: str | float,
    hosts: str,
    name: str,
    partition: str,
) -> Row | LeftOut:
    gpus = _total(allocated)
    if gpus == 0:
        return NO_GPU
    if options.completed_only and state != _COMPLETED:
        return NOT_COMPLETED
    ran_on = _types(allocated, options)
    types = ran_on if options.pin_types else _types(requested, options)
    return ran_for(elapsed_s, from_="elapsed time") or Row(
        id=job,
        submit_s=submit_s,
        gpus=gpus,
        tenant=tenant or None,
        duration_s=elapsed_s,
        ran_on=ran_on[0] if len(ran_on) == 1 else None,
        nodes=nodes or None,
        types=types,
        ended="" if state == _COMPLETED else state.lower().replace("_", " "),
        past=Past(_waited_s(start, submit_s, options), elapsed_s, _hosts(hosts), name, partition),
    )


def _waited_s(start: str | float, submit_s: float, options: Options) -> float | None:
    """Seconds from the submission to the start; None if there is no time of a start."""
    if isinstance(start, str):
        if not start[:1].isdigit():  # None, Unknown
            return None
        start = parse_time(start, options.timezone)
    return max(start - submit_s, 0.0) if start > 0 else None


def _hosts(text: str) -> tuple[str, ...]:
    """The nodes of a job; empty for "None assigned" and anything that is not a list of hosts."""
    try:
        return () if not text or " " in text else tuple(expand_hosts(text))
    except InputError:
        return ()


def _gpus(tres: str) -> _Gpus:
    return [(kind, int(count)) for kind, count in _TRES.findall(tres)]


def _json_gpus(tres: Iterable[Mapping[str, Any]]) -> _Gpus:
    resources = [(entry["name"], int(_plain(entry["count"]))) for entry in tres if entry.get("type") == "gres"]
    return [(name.partition(":")[2], count) for name, count in resources if name.partition(":")[0] == "gpu"]


def _total(gpus: _Gpus) -> int:
    """The number of GPUs. Slurm lists GPUs by type and again as a sum; some sites have only one of the two."""
    plain = [count for kind, count in gpus if not kind]
    return plain[0] if plain else sum(count for _, count in gpus)


def _types(gpus: _Gpus, options: Options) -> tuple[str, ...]:
    return tuple(dict.fromkeys(canonical_gpu(kind, options.aliases) for kind, _ in gpus if kind))


def _elapsed_s(record: Mapping[str, str]) -> float:
    if record.get("ElapsedRaw"):
        return number(record, "ElapsedRaw")
    match = _ELAPSED.match(record.get("Elapsed", ""))
    if match is None:
        raise InputError("has neither ElapsedRaw nor an Elapsed such as 1-02:03:04; add ElapsedRaw to --format")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _plain(value: Any) -> float:
    """The number itself; newer versions of Slurm wrap numbers: {"set": true, "infinite": false, "number": 4}."""
    return float(value["number"] if isinstance(value, dict) else value)


_NOTES = (
    "the tenant is the account, else the user",
    "a job may run on any type unless it requested one by name",
)
TEXT = TraceFormat(
    name="sacct",
    title="Slurm sacct --parsable2",
    detect=lambda head: "JobID" in head.partition("\n")[0].split("|"),
    records=text_records,
    row=text_row,
    notes=_NOTES,
    absolute_times=True,
)
JSON = TraceFormat(
    name="sacct-json",
    title="Slurm sacct --json",
    detect=lambda head: head.lstrip().startswith("{") and bool(re.search(r'"jobs"\s*:|"sacct"', head)),
    records=json_records,
    row=json_row,
    notes=_NOTES,
    absolute_times=True,
)
