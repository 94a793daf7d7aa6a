"""Two traces of Alibaba: PAI v2020 (NSDI'22), tasks with the GPU type they ran on, and openb v2023 (ATC'23), pods.

    pai_task_table.csv, no column names  job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
    pai_job_table.csv next to it         job_name,inst_id,user,status,start_time,end_time
    openb_pod_list_*.csv                 name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,...

A PAI job is the sum of its tasks: GPUs = sum of plan_gpu / 100 x inst_num, from the first start to the last end of
those that have GPUs. Its submission time and user are in the job table, which may be missing. A fraction of a GPU is
rounded up to a whole one, because Fairlead does not share GPUs, and the duration stays the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.traces.files import open_text
from fairlead.traces.importers.rows import (
    NO_GPU,
    NOT_COMPLETED,
    NOT_ENDED,
    LeftOut,
    Options,
    Records,
    Row,
    TraceFormat,
    csv_lines,
    csv_records,
    number,
    ran_for,
    whole,
)

# "GPUs of older generations, e.g., NVIDIA Tesla K40m, K80, M60" is PAI's own description of MISC. G2 and G3 of openb
# are anonymised; its authors' simulator gives them 20,000 and 30,000 MiB, so these are the nearest types by memory.
SUBSTITUTES: Mapping[str, str] = {"misc": "k80", "g2": "a10", "g3": "v100-32"}

_TASK = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
_JOB_TABLE = "pai_job_table.csv"
_TASK_LINE = re.compile(
    r"[^,]*,[^,]*,[\d.]*,(Running|Terminated|Failed|Waiting),[\d.]*,[\d.]*,[\d.]*,[\d.]*,[\d.]*,\w*\s*\Z"
)


def alibaba_gpu(name: str, aliases: Mapping[str, str]) -> str:
    gpu = canonical_gpu(name, aliases)
    return gpu if any(key.lower() == name.lower() for key in aliases) else SUBSTITUTES.get(gpu, gpu)


@dataclass(slots=True)
class _Job:
    """A PAI job, summed over the tasks read so far."""

    line: int
    name: str
    gpus: float = 0.0
    start_s: float = math.inf
    end_s: float = -math.inf
    completed: bool = True
    ended: bool = True
    gpu: str | None = None
    user: str | None = None
    submit_s: float | None = None


def pai_records(file: IO[str], options: Options) -> Records:
    """The jobs, after all tasks have been read, because the tasks of a job need not be adjacent."""
    jobs: dict[str, _Job] = {}
    for line, cells in csv_lines(file):
        if isinstance(cells, InputError):
            yield line, cells
        elif len(cells) != len(_TASK):
            yield line, InputError(f"has {len(cells)} fields; wanted {len(_TASK)}: {','.join(_TASK)}")
        elif cells[0] != _TASK[0]:
            try:
                _add_task(jobs, line, dict(zip(_TASK, cells, strict=True)), options)
            except InputError as error:
                yield line, error
    _add_users(jobs, Path(file.name).with_name(_JOB_TABLE))
    for job in jobs.values():
        yield job.line, job


def pai_row(line: int, job: _Job, options: Options) -> Row | LeftOut:
    if job.gpus == 0:
        return NO_GPU
    if options.completed_only and not job.completed:
        return NOT_COMPLETED
    if not job.ended:
        return NOT_ENDED
    submit_s = job.start_s if job.submit_s is None else min(job.submit_s, job.start_s)
    return ran_for(job.end_s - job.start_s) or Row(
        id=job.name,
        submit_s=submit_s,
        gpus=math.ceil(round(job.gpus, 6)),
        tenant=job.user,
        duration_s=job.end_s - job.start_s,
        ran_on=job.gpu,
        types=(job.gpu,) if options.pin_types and job.gpu else (),
    )


def _add_task(jobs: dict[str, _Job], line: int, task: dict[str, str], options: Options) -> None:
    share = number(task, "plan_gpu") if task["plan_gpu"] else 0.0
    count = number(task, "inst_num") if task["inst_num"] else 1.0
    if share < 0 or count < 0:
        raise InputError(f"plan_gpu is {share:g} and inst_num is {count:g}; wanted numbers that are not negative")
    start_s = number(task, "start_time") if task["start_time"] else None
    end_s = number(task, "end_time") if task["end_time"] else None
    gpu = alibaba_gpu(task["gpu_type"], options.aliases) if task["gpu_type"] and share else None
    job = jobs.get(task["job_name"])
    if job is None:
        job = jobs[task["job_name"]] = _Job(line, task["job_name"])
    job.completed &= task["status"] == "Terminated"
    if share == 0:
        return
    job.gpus += share / 100.0 * count
    job.gpu = job.gpu or gpu
    if start_s is None or end_s is None:
        job.ended = False
        return
    job.start_s, job.end_s = min(job.start_s, start_s), max(job.end_s, end_s)


def _add_users(jobs: dict[str, _Job], table: Path) -> None:
    if not table.exists():
        return
    with open_text(table) as file:
        for line, cells in csv_lines(file):
            if isinstance(cells, InputError) or len(cells) != 6:
                raise InputError("is not a line of PAI's job table; wanted 6 fields", path=str(table), line=line)
            job = jobs.get(cells[0])
            if job is not None:
                job.user = cells[2] or None
                job.submit_s = _start(cells[4], table, line)


def _start(text: str, table: Path, line: int) -> float | None:
    try:
        return number({"start_time": text}, "start_time") if text else None
    except InputError as error:
        raise error.at(str(table), line) from None


def openb_records(file: IO[str], options: Options) -> Records:
    return csv_records(file, ("name", "num_gpu", "gpu_spec", "creation_time", "deletion_time"))


def openb_row(line: int, record: Mapping[str, str], options: Options) -> Row | LeftOut:
    gpus = whole(record, "num_gpu")
    if gpus == 0:
        return NO_GPU
    if options.completed_only and record.get("pod_phase") == "Failed":
        return NOT_COMPLETED
    if not record["deletion_time"]:
        return NOT_ENDED
    submit_s = number(record, "creation_time")
    start_s = number(record, "scheduled_time") if record.get("scheduled_time") else submit_s
    duration_s = number(record, "deletion_time") - start_s
    types = tuple(dict.fromkeys(alibaba_gpu(name, options.aliases) for name in record["gpu_spec"].split("|") if name))
    return ran_for(duration_s) or Row(record["name"], submit_s, gpus, duration_s=duration_s, types=types)


PAI = TraceFormat(
    name="pai",
    title="Alibaba PAI v2020 pai_task_table.csv, with pai_job_table.csv next to it",
    detect=lambda head: bool(_TASK_LINE.match(head.partition("\n")[0])) or head.startswith(",".join(_TASK)),
    records=pai_records,
    row=pai_row,
    notes=(
        "a job's GPUs are the sum over its tasks, rounded up: plan_gpu / 100 x inst_num",
        "the tenant is the user, and the submission time is that of the job, if pai_job_table.csv is next to the file",
        "a job may run on any type unless types are pinned; MISC (K40, K80, M60) counts as k80",
    ),
    absolute_times=True,  # from an anonymised date; read as Unix time, hour and weekday are right in UTC+8
)
OPENB = TraceFormat(
    name="openb",
    title="Alibaba v2023 openb_pod_list_*.csv",
    detect=lambda head: head.startswith("name,cpu_milli,memory_mib,num_gpu,gpu_milli"),
    records=openb_records,
    row=openb_row,
    notes=(
        "a pod that shares a GPU gets a whole one",
        "the hidden types G2 and G3 count as a10 and v100-32, the nearest by memory",
    ),
)
