from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.jobs import when
from fairlead.cli.output import Format, Output, print_json, print_table
from fairlead.library.live import job_path
from fairlead.model.errors import NotFoundError


def archive(
    job: Annotated[str | None, typer.Argument(help="A job's id (default: all segments).", metavar="[JOB]")] = None,
    state: Annotated[Path, typer.Option(help="State directory of the service; it is only read.")] = Path(
        "fairlead-state"
    ),
    output: Output = Format.table,
) -> None:
    """List what the service has archived, or show an archived job. Works without the service."""
    from fairlead.service.store.archive import find_archived_job, segments
    from fairlead.service.store.directory import StateDirectory

    directory = StateDirectory(state)
    if job is not None:
        job_path(job)  # refuses what is not an id
        found = find_archived_job(directory, job)
        if found is None:
            raise NotFoundError(
                f"{job} is not in {directory.archive}; jobs that are kept are shown by `fairlead status`"
            )
        segment, row = found
        document = {"files": [str(directory.archive / name) for name in segment.files], **row}
        if output is Format.json:
            print_json(document)
        else:
            print_table(f"Job {job}", ["", ""], [[name, str(value)] for name, value in document.items()], left=2)
        return
    rows = segments(directory)
    if output is Format.json:
        print_json([asdict(one) for one in rows])
        return
    heads = ["segment", "from", "to", "records", "jobs"]
    table = [
        [one.name, when(one.from_s or None), when(one.to_s), f"{one.last_seq - one.first_seq + 1:,}", f"{one.jobs:,}"]
        for one in rows
    ]
    print_table(f"Archive in {directory.archive}", heads, table, left=3)
