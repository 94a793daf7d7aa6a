"""Commands for people who train: submit, queue, status, cancel, hold, release, logs, wait."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Any

import typer

from fairlead.cli.output import Format, Output, print_json, print_lines, print_table, write_stream
from fairlead.cli.starts import estimated_starts, starts_of
from fairlead.library.live import connect, job_path
from fairlead.model.errors import InputError
from fairlead.model.public_job import COLUMNS, PublicJob, read_public_job
from fairlead.model.units import format_duration
from fairlead.service.client import Client

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
    job_document = connect().submit(file, tenant=tenant, key=key)
    if output is Format.json:
        print_json(job_document)
    else:
        print_lines(job_document["id"])


def queue(
    tenant: Annotated[str | None, typer.Option(help="Only jobs of this tenant.")] = None,
    phase: Annotated[list[str] | None, typer.Option(help="Only jobs in this phase: waiting, running, ...")] = None,
    ended: Annotated[bool, typer.Option("--all", help="Also jobs that have ended.")] = False,
    after: Annotated[int, typer.Option(min=0, help="Continue after this number, printed with the last page.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The maximum number of jobs to list.")] = 100,
    start: Annotated[bool, typer.Option("--start", help="List jobs that wait, and when they will start.")] = False,
    output: Output = Format.table,
) -> None:
    """List the jobs that wait or run."""
    if start and (phase or ended):
        raise InputError("--start is for jobs that wait; leave out --phase and --all")
    phases = ["waiting"] if start else phase or (None if ended else ["active"])
    client = Client.from_environment()
    page = client.get("/jobs", tenant=tenant, phase=phases, after=after, limit=limit)
    estimates = client.get("/estimates") if start else {"estimates": []}
    starts = starts_of(estimates) if start else {}
    if output is Format.json:
        by_job = {job["id"]: starts.get(job["id"]) for job in page["jobs"]}
        print_json({**page, "starts": by_job, "no_starts": estimates["reason"]} if start else page)
        return
    if start:
        _print_starts(page["jobs"], starts, estimates)
    else:
        print_table("Jobs", JOB_COLUMNS, [job_row(job) for job in page["jobs"]], left=5)
    if page["next"] is not None:
        print(f"... and more: --after {page['next']}")
    print_watching(client)


def print_watching(client: Client) -> None:
    """Say that the service only watches, if it does, that its engine cannot be reached, or no jobs of Slurm taken over."""
    scheduler = client.get("/status")["scheduler"]
    intake, trouble = scheduler.get("intake"), scheduler.get("engine_trouble")
    problems = [trouble] if trouble else []
    problems += [f"jobs of Slurm cannot be taken over now: {intake}"] if intake else []
    print_lines(*(f"note: {sentence}" for sentence in (*(scheduler.get("watching") or ()), *problems)))


def _print_starts(jobs: list[dict[str, Any]], starts: dict[str, dict[str, Any]], answer: dict[str, Any]) -> None:
    rows = [
        [job["id"], job["name"], job["tenant"], starts.get(job["id"], {}).get("text", "-"), job["reason"] or "-"]
        for job in jobs
    ]
    print_table("Waiting jobs", ["job", "name", "tenant", "starts", "why it waits"], rows, left=5)
    times_s = [one["time_s"] for one in starts.values()]
    print_lines(
        f"estimated at {when(max(times_s))}" if times_s else f"there are no estimates: {answer['reason'] or 'not yet'}"
    )
    if answer["checked"]:
        print_lines(f"in the last week {answer['held']} of {answer['checked']} estimates held")


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
    if job is not None and document["phase"] == "waiting":
        document["start"] = estimated_starts(client).get(job)
    if output is Format.json:
        print_json(document)
        return
    if job is None:
        for name in ("watching", "intake", "engine_trouble"):
            document["scheduler"].pop(name, None)  # below the table, as sentences
    if document.get("start"):
        document["start"] = document["start"]["text"]
    rows = [[name, _shown(name, value)] for name, value in document.items() if value not in (None, {}, [])]
    print_table("Cluster" if job is None else f"Job {job}", ["", ""], rows, left=2)
    print_watching(client)


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
    for line in connect().logs(job, follow=follow):
        write_stream(line)


def wait(
    job: JobId,
    timeout: Annotated[str | None, typer.Option(help="Give up after this time, such as 10m (exit code 1).")] = None,
    output: Output = Format.table,
) -> None:
    """Wait until a job has ended, and exit with its exit code."""
    document = connect().wait(job, timeout)
    if output is Format.json:
        print_json(document)
    else:
        print_lines(document["phase"])
    raise typer.Exit(_exit_code(document))


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
    client = connect()
    answers = [client.ask(verb, job) for job in jobs]
    if output is Format.json:
        print_json(answers)
    else:
        for job in jobs:
            print(f"{job}: {verb} requested")


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
