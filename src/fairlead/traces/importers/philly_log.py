"""The Philly trace itself (Microsoft, ATC'19): `cluster_job_log`, one JSON array of jobs with their attempts.

A job's GPUs are those of its last attempt. Its duration is the GPU time of all attempts that have both ends, divided by
those GPUs, because repeated attempts were work for the cluster too. Times have no zone (the site's was
America/Los_Angeles, whose clock was set back inside the trace), so they are read in the zone that the user names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import IO, Any

from fairlead.model.errors import InputError
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
    ran_for,
)
from fairlead.traces.importers.times import parse_time

_NO_TIME = (None, "", "None")


def records(file: IO[str], options: Options) -> Records:
    return array_records(file, r"\[")


def row(line: int, record: Any, options: Options) -> Row | LeftOut:
    if not isinstance(record, dict):
        raise InputError(f"found {str(record)[:40]!r} in the list of jobs; wanted an object with jobid and attempts")
    submitted = record.get("submitted_time")
    if submitted in _NO_TIME:
        raise InputError(f"submitted_time is {submitted!r}; wanted a time")
    if options.completed_only and record.get("status") != "Pass":
        return NOT_COMPLETED
    attempts = record.get("attempts")
    if not isinstance(attempts, list):
        raise InputError(f"attempts is {attempts!r}; wanted a list")
    ended = [ran for attempt in attempts if (ran := _attempt(attempt, options)) is not None]
    if not ended:
        return NOT_ENDED if attempts else LeftOut("was never_ran started")
    gpus = ended[-1][0]
    if gpus == 0:
        return NO_GPU
    gpu_s = sum(count * seconds for count, seconds in ended)
    never_ran = ran_for(gpu_s, from_="GPU time")
    return never_ran or Row(
        id=_text(record, "jobid"),
        submit_s=parse_time(str(submitted), options.timezone),
        gpus=gpus,
        tenant=_text(record, "vc"),
        duration_s=gpu_s / gpus,
    )


def _attempt(attempt: Any, options: Options) -> tuple[int, float] | None:
    """The GPUs and seconds of an attempt; None if its start or end is missing."""
    if not isinstance(attempt, dict) or not isinstance(attempt.get("detail", []), list):
        raise InputError(f"found {str(attempt)[:40]!r} among the attempts; wanted start_time, end_time and detail")
    start, end = attempt.get("start_time"), attempt.get("end_time")
    if start in _NO_TIME or end in _NO_TIME:
        return None
    seconds = parse_time(str(end), options.timezone) - parse_time(str(start), options.timezone)
    ran_for(seconds, from_="an attempt")
    return sum(
        len(machine.get("gpus") or ()) for machine in attempt.get("detail", []) if isinstance(machine, dict)
    ), seconds


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise InputError(f"{name} is {value!r}; wanted a name")
    return value


FORMAT = TraceFormat(
    name="philly-json",
    title="Philly cluster_job_log (Microsoft)",
    detect=lambda head: bool(re.match(r"\s*\[\s*\{", head)) and '"jobid"' in head,
    records=records,
    row=row,
    notes=(
        "the tenant is the virtual cluster (vc)",
        "a job that was tried again counts once, with the GPU time of all its attempts at the width of the last",
        "the log names no GPU model",
    ),
    absolute_times=True,
)
