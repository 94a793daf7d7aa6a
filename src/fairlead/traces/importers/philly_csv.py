"""The CSV that the authors of Pollux derived from the Philly trace: timestamp,duration,num_gpus,gpu_time,cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO

from fairlead.traces.importers.rows import LeftOut, Options, Records, Row, TraceFormat, csv_records, number, whole
from fairlead.traces.importers.times import parse_time

COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")


def records(file: IO[str], options: Options) -> Records:
    return csv_records(file, ("timestamp", "duration", "num_gpus", "cluster"))


def row(line: int, record: Mapping[str, str], options: Options) -> Row | LeftOut:
    return Row(
        id=str(line - 2),
        submit_s=parse_time(record["timestamp"], options.timezone),
        gpus=whole(record, "num_gpus"),
        tenant=record["cluster"],
        duration_s=number(record, "duration"),
    )


FORMAT = TraceFormat(
    name="philly-csv",
    title="the CSV derived from the Philly trace by the authors of Pollux",
    detect=lambda head: head.startswith(",".join(COLUMNS)),
    records=records,
    row=row,
    notes=("a job's id is its line below the column names, from 0", "the tenant is the virtual cluster"),
    absolute_times=True,
    numbered=True,
)
