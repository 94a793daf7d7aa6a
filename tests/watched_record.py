"""What a service that watches Slurm has seen, made up: two nodes, and jobs with their times in hours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairlead.engines.slurm.watch_file import FILE, WatchedNode, WatchFile, job_line, node_line
from fairlead.engines.slurm.watched import WatchedJob, WatchedRun
from fairlead.model.jobs import JobSpec
from fairlead.studies.shadow.window import UNKNOWN

T0 = 1_794_800_000.0
HOUR = 3600.0
NODES = (WatchedNode("fast", "v100", 4), WatchedNode("slow", "k80", 4))


def row(
    id_: str, tenant: str, submit_h: float, start_h: float | None, end_h: float | None, host: str = "fast", **more: Any
) -> WatchedJob:
    spec = JobSpec(id_, tenant, more.pop("model", UNKNOWN), T0 + submit_h * HOUR, more.pop("gpus", 4), None, nodes=1)
    runs: tuple[WatchedRun, ...] = ()
    if start_h is not None:
        end_s = None if end_h is None else T0 + end_h * HOUR
        runs = (WatchedRun(T0 + start_h * HOUR, (host,), end_s, "COMPLETED" if end_s else ""),)
    ended = "COMPLETED" if end_h is not None else ""
    return WatchedJob(spec, None, more.pop("model_from", "default"), runs=runs, ended=ended, **more)


# One team holds the fast node for two jobs in a row, and the other waits although the slow node is idle.
ROWS = (row("1", "a", 0, 0, 2), row("2", "a", 0, 2, 4), row("3", "b", 0, 4, 6))


def write_record(folder: Path, *rows: WatchedJob) -> None:
    """The record of these jobs and both nodes, as it is in a state directory."""
    file = WatchFile(folder / FILE)
    file.write([node_line(T0, node) for node in NODES])
    until_s = max([T0 + 10 * HOUR, *(run.end_s or run.start_s for one in rows for run in one.runs)])
    file.write([job_line(until_s, one) for one in rows])
    file.close()
