"""`fairlead.connect`: the jobs of a running service. Light to import, because the commands for jobs use it too."""

from __future__ import annotations

import json
import re
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.model.errors import FairleadError, InputError, NotFoundError
from fairlead.model.public_job import ENDED_PHASES, JOB_ID
from fairlead.model.units import parse_duration
from fairlead.service.client import Client, UnreachableError

if TYPE_CHECKING:
    from fairlead.model.explanation import Explanation
    from fairlead.service.jobfile import JobFile

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0  # between two looks at a job


def connect(url: str | None = None, token: str | None = None) -> JobClient:
    """A client of a running service: of `url`, or of FAIRLEAD_URL, or of the one whose token was saved for this user."""
    usual = Client.from_environment()
    if url is None:
        return JobClient(Client(usual.url, token or usual.token))
    same = url.rstrip("/") == usual.url.rstrip("/")
    return JobClient(Client(url, token or (usual.token if same else None)))


@dataclass(frozen=True)
class JobClient:
    """Submits jobs to a service and asks about them; documents are those of the REST API."""

    service: Client

    def submit(
        self, job: Mapping[str, Any] | str | PathLike[str], *, tenant: str | None = None, key: str | None = None
    ) -> dict[str, Any]:
        """Submit a job file, or a mapping with its fields. Once this returns, the job survives any failure of the service.

        Submitting again with the same `key` returns the same job.
        """
        body = job_of(job).model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        if tenant is not None:
            body.setdefault("tenant", tenant)
        key = key or secrets.token_hex(8)
        try:
            document: dict[str, Any] = self.service.post("/jobs", body, {"Idempotency-Key": key})
        except UnreachableError as error:
            # The request may have arrived even though its answer did not.
            raise UnreachableError(f"{error}; to submit again without creating a second job, add --key {key}") from None
        return document

    def job(self, job: str) -> dict[str, Any]:
        """Everything about a job."""
        document: dict[str, Any] = self.service.get(job_path(job))
        return document

    def jobs(self, *, tenant: str | None = None, phase: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """The jobs that wait or run, or those of a phase, up to `limit`."""
        page = self.service.get("/jobs", tenant=tenant, phase=[phase or "active"], limit=limit)
        jobs: list[dict[str, Any]] = page["jobs"]
        return jobs

    def wait(self, job: str, timeout: str | float | None = None) -> dict[str, Any]:
        """Wait until the job has ended, and return its document; after `timeout`, an error."""
        until_s = deadline_s(timeout)
        pause = pauses()
        while (document := self.job(job))["phase"] not in ENDED_PHASES:
            if time.monotonic() >= until_s:
                raise still_waiting(document, timeout)
            time.sleep(next(pause))
        return document

    def logs(self, job: str, *, follow: bool = False) -> Iterator[str]:
        """The output of a job over all its runs, line by line; with `follow`, until it ends."""
        return self.service.lines(f"{job_path(job)}/logs", follow="true" if follow else None)

    def explain(self, job: str, *, remedies: bool = True) -> Explanation:
        """Why the job waits, runs where it does or ended, and what would help it."""
        from fairlead.model.explanation import read_explanation

        wanted = None if remedies else "false"
        return read_explanation(self.service.get(f"{job_path(job)}/explain", remedies=wanted))

    def cancel(self, job: str) -> None:
        self.ask("cancel", job)

    def hold(self, job: str) -> None:
        """Take the job out of the queue; a running one writes a checkpoint and stops."""
        self.ask("hold", job)

    def release(self, job: str) -> None:
        """Put a held job back into the queue."""
        self.ask("release", job)

    def ask(self, verb: str, job: str) -> Any:
        return self.service.post(f"{job_path(job)}/{verb}")

    def status(self) -> dict[str, Any]:
        """A summary of the cluster."""
        document: dict[str, Any] = self.service.get("/status")
        return document


def deadline_s(timeout: str | float | None) -> float:
    """When to give up, by the monotonic clock."""
    return time.monotonic() + (float("inf") if timeout is None else parse_duration(timeout, "--timeout"))


def pauses() -> Iterator[float]:
    """Seconds between looks at a job: short at first, then longer."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)


def still_waiting(document: Mapping[str, Any], timeout: str | float | None) -> FairleadError:
    return FairleadError(f"job {document['id']} is still {document['phase']} after {timeout}")


def job_of(job: Mapping[str, Any] | str | PathLike[str]) -> JobFile:
    """The job of a file (`-`: of stdin) or of a mapping. A relative workdir is relative to the file, or to the current directory."""
    from fairlead.service.jobfile import read_job
    from fairlead.traces.files import read_text

    if isinstance(job, Mapping):
        return read_job(json.dumps(job), "job", str(Path.cwd()))
    if job == "-":
        return read_job(_read_stdin(), job, str(Path.cwd()))
    return read_job(read_text(str(job)), str(job), str(Path(job).resolve().parent))


def _read_stdin() -> str:
    text = sys.stdin.read()
    if not text.strip():
        raise InputError("stdin is empty; expected a job file")
    return text


def job_path(job: str) -> str:
    if not re.fullmatch(JOB_ID, job):
        raise NotFoundError(f'"{job}" is not the id of a job; ids look like j12 (see `fairlead queue --all`)')
    return f"/jobs/{job}"
