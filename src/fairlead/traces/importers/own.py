"""Fairlead's own trace format: CSV below a few comment lines.

    # fairlead: trace/1
    # name: what it is called
    # note: one thing that was assumed when the file was made (any number of these lines)
    id,tenant,model,arrival_s,gpus,steps,widths,types,weight,relaxed
    7,vision,resnet50,360.5,4,12000,2|4|8,v100|a100,1.0,false

`id`, `model`, `arrival_s` and `gpus` are required; the other columns may be left out or empty. `gpus` is the width at
which a step is counted; `widths` are all allowed numbers of GPUs (empty: only `gpus`), `types` all allowed types
(empty: any). Empty `steps` are unknown. `#` starts a comment only above the column names.

A trace of what another scheduler did has more columns: `waited_s` and `ran_s` (from its submission to its start, and to
its end), `hosts` in Slurm's notation, `name` and `partition` of the job there, and `model_from`, which is `name` if a
pattern matched the job's name and `drawn` if the model was drawn by a hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import IO

from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.model.jobs import JobSpec
from fairlead.model.past import Past
from fairlead.model.slurm_text import compress_hosts, expand_hosts
from fairlead.traces.importers.rows import LeftOut, Options, Records, Row, TraceFormat, csv_records, number, whole

KIND = "trace/1"
COLUMNS = ("id", "tenant", "model", "arrival_s", "gpus", "steps", "widths", "types", "weight", "relaxed")
PAST = ("waited_s", "ran_s", "hosts", "name", "partition", "model_from")
_REQUIRED = ("id", "model", "arrival_s", "gpus")
_RELAXED = {"": False, "false": False, "true": True, "0": False, "1": True}


def records(file: IO[str], options: Options) -> Records:
    above, first = 0, ""
    for first in file:
        if not first.startswith("#") and first.strip():
            break
        above += 1
        _check_kind(first, above)
    return csv_records(chain([first], file), _REQUIRED, (*COLUMNS, *PAST), above=above)


def row(line: int, record: Mapping[str, str], options: Options) -> Row | LeftOut:
    relaxed = _RELAXED.get(record.get("relaxed", "").lower())
    if relaxed is None:
        raise InputError(f'relaxed is "{record["relaxed"]}"; wanted true or false')
    return Row(
        id=record["id"],
        submit_s=number(record, "arrival_s"),
        gpus=whole(record, "gpus"),
        tenant=record.get("tenant") or None,
        model=record["model"],
        steps=number(record, "steps") if record.get("steps") else None,
        widths=tuple(whole({"widths": part}, "widths") for part in _parts(record, "widths")),
        types=tuple(canonical_gpu(part, options.aliases) for part in _parts(record, "types")),
        weight=number(record, "weight") if record.get("weight") else 1.0,
        relaxed=relaxed,
        past=_past(record) if any(name in record for name in PAST) else None,
    )


def _past(record: Mapping[str, str]) -> Past:
    hosts = record.get("hosts")
    return Past(
        number(record, "waited_s") if record.get("waited_s") else None,
        number(record, "ran_s") if record.get("ran_s") else None,
        tuple(expand_hosts(hosts)) if hosts else (),
        *(record.get(name, "") for name in PAST[3:]),
    )


def head_lines(name: str, notes: tuple[str, ...], *, past: bool = False) -> list[str]:
    comments = [f"name: {name}", *(f"note: {note}" for note in notes)]
    columns = (*COLUMNS, *PAST) if past else COLUMNS
    return [f"# fairlead: {KIND}", *("# " + " ".join(line.split()) for line in comments), ",".join(columns)]


def read_head(head: str) -> tuple[str | None, tuple[str, ...]]:
    """The name and the notes of a trace, from the beginning of its file."""
    comments = [line[1:].strip().partition(":") for line in head.splitlines() if line.startswith("#")]
    names = [value.strip() for key, _, value in comments if key == "name"]
    return (names[0] if names else None), tuple(value.strip() for key, _, value in comments if key == "note")


def line_parts(job: JobSpec, past: Past | None = None) -> tuple[str, str]:
    """The text before and after the arrival time, so that a writer can still shift it; with what happened, if known."""
    steps = "" if job.steps is None else repr(job.steps)
    widths = "" if job.widths == (job.gpus,) else "|".join(map(str, job.widths))
    types = _cell("|".join(job.types))
    before = f"{_cell(job.id)},{_cell(job.tenant)},{_cell(job.model)},"
    after = f",{job.gpus},{steps},{widths},{types},{job.weight!r},{'true' if job.relaxed else 'false'}"
    return before, f"{after}{'' if past is None else _past_cells(past)}\n"


def _past_cells(past: Past) -> str:
    times = ["" if value is None else repr(value) for value in (past.waited_s, past.ran_s)]
    texts = [compress_hosts(past.hosts), past.name, past.partition, past.model_from]
    return "".join(f",{cell}" for cell in (*times, *map(_cell, texts)))


def _cell(text: str) -> str:
    if text.isalnum() or not any(mark in text for mark in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _parts(record: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = record.get(name)
    return tuple(part.strip() for part in text.split("|")) if text else ()


def _check_kind(comment: str, line: int) -> None:
    key, _, value = comment[1:].strip().partition(":")
    if key == "fairlead" and value.strip() != KIND:
        raise InputError(f'this is a "{value.strip()}" file; wanted {KIND}', path="", line=line)


FORMAT = TraceFormat(
    name="fairlead",
    title="Fairlead's own CSV, written by `trace generate` and `trace convert`",
    detect=lambda head: head.startswith(("# fairlead: trace/", "id,")),
    records=records,
    row=row,
)
