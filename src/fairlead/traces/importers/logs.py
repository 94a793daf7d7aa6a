"""Slurm-like logs of two data centres, one CSV line per job: Helios (SenseTime, SC'21) and Acme (Shanghai AI Lab, NSDI'24).

Helios  job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
Acme    job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
(Kalos has a few more columns, and its times have a zone)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO

from fairlead.traces.importers.rows import (
    NO_GPU,
    NOT_COMPLETED,
    LeftOut,
    Options,
    Records,
    Row,
    TraceFormat,
    csv_records,
    number,
    ran_for,
    whole,
)
from fairlead.traces.importers.times import parse_time

_COMMON = ("job_id", "user", "gpu_num", "state", "submit_time", "duration")
ACME_GPU = "a100-80"  # both of its clusters have A100s with 80 GB


def helios_records(file: IO[str], options: Options) -> Records:
    return csv_records(file, (*_COMMON, "vc"))


def acme_records(file: IO[str], options: Options) -> Records:
    return csv_records(file, _COMMON)


def helios_row(line: int, record: Mapping[str, str], options: Options) -> Row | LeftOut:
    return _row(record, options, record["vc"], None)


def acme_row(line: int, record: Mapping[str, str], options: Options) -> Row | LeftOut:
    return _row(record, options, record["user"], ACME_GPU)


def _row(record: Mapping[str, str], options: Options, tenant: str, ran_on: str | None) -> Row | LeftOut:
    gpus = whole(record, "gpu_num")
    if gpus == 0:
        return NO_GPU
    if options.completed_only and record["state"] != "COMPLETED":
        return NOT_COMPLETED
    duration_s = number(record, "duration")
    never_ran = ran_for(duration_s)
    if never_ran is not None:
        return never_ran
    return Row(
        id=record["job_id"],
        submit_s=parse_time(record["submit_time"], options.timezone),
        gpus=gpus,
        tenant=tenant,
        duration_s=duration_s,
        ran_on=ran_on,
    )


def _columns(head: str) -> list[str]:
    return [name.strip() for name in head.partition("\n")[0].split(",")]


HELIOS = TraceFormat(
    name="helios",
    title="Helios cluster_log.csv (SenseTime)",
    detect=lambda head: {"job_id", "vc", "gpu_num", "node_num"} <= set(_columns(head)),
    records=helios_records,
    row=helios_row,
    notes=("the tenant is the virtual cluster (vc)", "the log names no GPU model"),
    absolute_times=True,
)
ACME = TraceFormat(
    name="acme",
    title="Acme trace_seren.csv and trace_kalos.csv (Shanghai AI Lab)",
    detect=lambda head: {"job_id", "user", "gpu_num", "type", "queue"} <= set(_columns(head)),
    records=acme_records,
    row=acme_row,
    notes=("the tenant is the user", f"durations are those on {ACME_GPU}"),
    absolute_times=True,
)
