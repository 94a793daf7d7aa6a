"""Traces of Gavel and Shockwave: tab-separated lines without a header, distinguished by their number of fields.

     7  job_type, command, num_steps_arg, needs_data_dir, total_steps, arrival_s, scale_factor          (Gavel, older)
    10  job_type, command, working_directory, num_steps_arg, needs_data_dir, total_steps, scale_factor,
        priority_weight, SLO, arrival_s                                                                 (Gavel)
    12  the same with mode before priority_weight and duration_s before arrival_s                       (Shockwave)

Gavel counts every worker's mini-batch as a step (its throughput on n GPUs is the sum over n workers). Our step is one
of the whole job, so total_steps is divided by scale_factor, just as the throughput table is.
"""

from __future__ import annotations

from typing import IO

from fairlead.model.errors import InputError
from fairlead.traces.importers.rows import LeftOut, Options, Records, Row, TraceFormat, number, whole

_HEAD = "job_type", "command"
_MIDDLE = "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor"
_FIELDS = {
    7: (*_HEAD, "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor"),
    10: (*_HEAD, *_MIDDLE, "priority_weight", "SLO", "arrival_time"),
    12: (*_HEAD, *_MIDDLE, "mode", "priority_weight", "SLO", "duration", "arrival_time"),
}


def records(file: IO[str], options: Options) -> Records:
    for line, text in enumerate(file, 1):
        cells = text.rstrip("\r\n").split("\t")
        names = _FIELDS.get(len(cells))
        if names is not None:
            yield line, dict(zip(names, cells, strict=True))
        elif text.strip():
            yield (
                line,
                InputError(f"has {len(cells)} tab-separated fields; wanted 10 (Gavel), 12 (Shockwave) or 7 (older)"),
            )


def row(line: int, record: dict[str, str], options: Options) -> Row | LeftOut:
    gpus = whole(record, "scale_factor")
    if gpus < 1:
        raise InputError(f"scale_factor is {gpus}; wanted a whole number of GPUs, 1 or more")
    return Row(
        id=str(line - 1),
        submit_s=number(record, "arrival_time"),
        gpus=gpus,
        model=record["job_type"],
        steps=whole(record, "total_steps") / gpus,
        weight=number(record, "priority_weight") if "priority_weight" in record else 1.0,
    )


def _detect(head: str) -> bool:
    first = next((line for line in head.splitlines() if line.strip()), "")
    return first.count("\t") + 1 in _FIELDS


FORMAT = TraceFormat(
    name="gavel",
    title="Gavel and Shockwave traces, 7, 10 or 12 tab-separated fields",
    detect=_detect,
    records=records,
    row=row,
    notes=(
        "a job's id is its line, from 0",
        "steps are total_steps / scale_factor: Gavel counts the steps of every worker",
        "SLOs are not read; batch sizes stay as they start, regardless of Shockwave's mode",
    ),
    numbered=True,
)
