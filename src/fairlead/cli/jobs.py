"""Commands for people who train: submit, queue, status, cancel, hold, release, logs, wait."""

from __future__ import annotations

import re
import secrets
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.output import Format, Output, print_json, print_table
from fairlead.model.errors import InputError, NotFoundError
from fairlead.model.public_job import COLUMNS, ENDED_PHASES, PublicJob, read_public_job
from fairlead.model.units import format_duration
from fairlead.service.client import Client, UnreachableError

if TYPE_CHECKING:
    from fairlead.service.jobfile import JobFile

JobId = Annotated[str, typer.Argument(help="The job's id, as `submit` printed it.", metavar="JOB")]
JobIds = Annotated[list[str], typer.Argument(help="Ids of jobs.", metavar="JOB...")]


def submit(
    file: Annotated[str, typer.Argument(help="Job file, YAML or JSON; - reads it from stdin.", metavar="FILE")],
    tenant: Annotated[str | None, typer.Option(help="Tenant of the job, if the file names none.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Submitting again with the same key returns the same job.")
    ] = None,
    output: Output = Format.table,
) -> None:
    """Submit a job. Once its id is printed, the job survives any failure of the service."""
    job = load_job(file)
    body = job.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    if tenant is not None:
        body.setdefault("tenant", tenant)
    key = key or secrets.token_hex(8)
    try:
        job_document = Client.from_environment().post("/jobs", body, {"Idempotency-Key": key})
    except UnreachableError as error:
        # The request may have arrived even though its answer did not.
        raise UnreachableError(f"{error}; to submit again without creating a second job, add --key {key}") from None
    if output is Format.json:
        print_json(job_document)
    else:
        print(job_document["id"])


def load_job(file: str) -> JobFile:
    """The job of a file, or of stdin for `-`; a relative workdir is relative to the file's directory."""
    from fairlead.service.jobfile import read_job

    return read_job(_read(file), file, str(Path.cwd() if file == "-" else Path(file).resolve().parent))


def queue(
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.")] = None,
    phase: Annotated[list[str] | None, typer.Option(help="Only jobs in this phase: waiting, running, ...")] = None,
    ended: Annotated[bool, typer.Option("--all", help="Also jobs that have ended.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Continue after this number, printed with the last page.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The maximum number of jobs to list.")] = 100,
    output: Output = Format.table,
) -> None:
    """List the jobs that wait or run."""
    phases = phase or (None if ended else ["active"])
    page = Client.from_environment().get("/jobs", tenant=tenant, phase=phases, after=after, limit=limit)
    if output is Format.json:
        print_json(page)
        return
    print_table("Jobs", JOB_COLUMNS, [job_row(job) for job in page["jobs"]], left=5)
    if page["next"] is not None:
        print(f"... and more: --after {page['next']}")


JOB_COLUMNS = list(COLUMNS.values())


def job_row(document: dict[str, Any]) -> list[str]:
    """The row of a job document of the service under `JOB_COLUMNS`."""
    job = read_public_job(document)
    cells = {"held": _where, "gpus": _gpus, "progress": _progress, "submitted_s": _age}
    return [cells[name](job) if name in cells else _shown(name, getattr(job, name)) for name in COLUMNS]


def _where(job: PublicJob) -> str:
    nodes = job.held.nodes if job.held else {}
    where = ", ".join(node if count == 1 else f"{node} x{count}" for node, count in nodes.items())
    return where or job.reason or "-"


def _gpus(job: PublicJob) -> str:
    return str(job.held.gpus if job.held else job.gpus)


def _progress(job: PublicJob) -> str:
    progress = job.progress
    if progress is None or not progress.samples:
        return "-"
    if progress.fraction is not None:
        return f"{100 * min(progress.fraction, 1.0):.0f} %"
    return f"{progress.samples:,.0f} samples"


def _age(job: PublicJob) -> str:
    return format_duration(max((job.end_s or time.time()) - job.submitted_s, 0.0))


def status(
    job: Annotated[str | None, typer.Argument(help="A job's id (default: the whole cluster).", metavar="[JOB]")] = None,
    output: Output = Format.table,
) -> None:
    """Show everything about a job, or a summary of the cluster."""
    client = Client.from_environment()
    document = client.get("/status" if job is None else job_path(job))
    if output is Format.json:
        print_json(document)
        return
    rows = [[name, _shown(name, value)] for name, value in document.items() if value not in (None, {}, [])]
    print_table("Cluster" if job is None else f"Job {job}", ["", ""], rows, left=2)


def cancel(jobs: JobIds, output: Output = Format.table) -> None:
    """Cancel jobs. A running job is asked to stop, and killed if it does not."""
    _each("cancel", jobs, output)


def hold(jobs: JobIds, output: Output = Format.table) -> None:
    """Take jobs out of the queue. A running job writes a checkpoint and stops."""
    _each("hold", jobs, output)


def release(jobs: JobIds, output: Output = Format.table) -> None:
    """Put held jobs back into the queue."""
    _each("release", jobs, output)


def logs(
    job: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the job ends.")] = False,
) -> None:
    """Print the output of a job, over all its runs."""
    for line in Client.from_environment().lines(f"{job_path(job)}/logs", follow="true" if follow else None):
        sys.stdout.write(line)
        sys.stdout.flush()


def wait(
    job: JobId,
    timeout: Annotated[str | None, typer.Option(help="Give up after this time, such as 10m (exit code 1).")] = None,
    output: Output = Format.table,
) -> None:
    """Wait until a job has ended, and exit with its exit code."""
    from fairlead.model.units import parse_duration

    client = Client.from_environment()
    until_s = time.monotonic() + (parse_duration(timeout) if timeout else float("inf"))
    pause_s = 0.1
    while (document := client.get(job_path(job)))["phase"] not in ENDED_PHASES:
        if time.monotonic() >= until_s:
            print(f"fairlead: job {job} is still {document['phase']} after {timeout}", file=sys.stderr)
            raise typer.Exit(1)
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 2.0)
    if output is Format.json:
        print_json(document)
    else:
        print(document["phase"])
    raise typer.Exit(_exit_code(document))


def job_path(job: str) -> str:
    if not re.fullmatch(r"j[1-9][0-9]{0,17}", job):
        raise NotFoundError(f'"{job}" is not the id of a job; ids look like j12 (see `fairlead queue --all`)')
    return f"/jobs/{job}"


def _exit_code(job: dict[str, Any]) -> int:
    """The exit code of the job; a job that ended without one counts as failed unless it finished."""
    code = job.get("exit_code")
    if code is None:
        return 0 if job["phase"] == "finished" else 1
    return int(code) if 0 <= code < 256 else 128 - int(code) if code < 0 else 1


def when(time_s: float | None) -> str:
    """Seconds since 1970 as a local date."""
    return "-" if time_s is None else datetime.fromtimestamp(time_s).astimezone().isoformat(" ", "seconds")


def _each(verb: str, jobs: list[str], output: Format) -> None:
    client = Client.from_environment()
    answers = [client.post(f"{job_path(job)}/{verb}") for job in jobs]
    if output is Format.json:
        print_json(answers)
    else:
        for job in jobs:
            print(f"{job}: {verb} requested")


def _read(file: str) -> str:
    from fairlead.traces.files import read_text

    if file != "-":
        return read_text(file)
    text = sys.stdin.read()
    if not text.strip():
        raise InputError("stdin is empty; expected a job file")
    return text


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("_hours"):
        return f"{value:.2f}"
    if name.endswith("_s") and isinstance(value, float) and value > 1e9:  # since 1970
        return when(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_shown(key, item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return ", ".join(_shown("", item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
