"""What Slurm did next to what a policy would have done, for a service that only watches: simulated in its own process.

`python -m fairlead.service.web.shadowing TASK` prints the answer to a task, both as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.engines.slurm.watch_file import FILE, read_record
from fairlead.model.errors import InputError
from fairlead.rounds.loop import When
from fairlead.service.api.apart import print_answer, simulated_apart
from fairlead.service.live_policies import POLICY_MEMORY_GIB, configured, limit_memory
from fairlead.service.store.directory import read_directory
from fairlead.studies.journals.folding import settings_of

if TYPE_CHECKING:
    from fairlead.studies.runs.summary import Summary
    from fairlead.studies.shadow.shadow_report import JobStarts, ShadowReport, TeamHours

PATIENCE_S = 180.0
NICE = 10  # looks at Slurm go first
MOST_TEAMS, MOST_JOBS = 50, 10  # on the page
# Rows of the comparison of all jobs: label, unit, and where a summary has the number.
FIGURES = (
    ("Mean wait", "s", ("wait_s", "mean")),
    ("99 % wait less than", "s", ("wait_s", "p99")),
    ("Mean completion", "s", ("jct_s", "mean")),
    ("Makespan", "s", ("makespan_s",)),
    ("Utilisation", "part", ("gpu_utilisation",)),
)


@dataclass(frozen=True, slots=True)
class ShadowTask:
    directory: str
    policy: str
    since_s: float | None  # of submissions; None: all that were watched
    tenant: str | None  # whose jobs the reader may see; None: all


async def shadow_apart(task: ShadowTask) -> dict[str, Any]:
    return await simulated_apart("fairlead.service.web.shadowing", asdict(task), PATIENCE_S)


def answer_task(task: ShadowTask) -> dict[str, Any]:
    """Slurm first, then the policy: figures of all jobs, of each team, over time, and of the jobs that waited longest."""
    # Only this process simulates: the service itself never imports the simulator.
    from fairlead.studies.policy_lab.plugins import PolicyRef
    from fairlead.studies.shadow.shadow_report import report_window
    from fairlead.studies.shadow.window import read_window

    header, _ = read_directory(Path(task.directory))
    window = read_window(
        read_record(Path(task.directory) / FILE), header.profile, since_s=task.since_s, tenant=task.tenant
    )
    parameters = header.parameters if task.policy == header.policy else {}
    policy = PolicyRef(task.policy, value=configured(task.policy, parameters, ()))
    settings = settings_of(header)
    advised = replace(settings, when=When.EVENTS, trial_s=0.0, check_share=0.0)
    report = report_window(window, [policy], advised, header.restart_s)
    if report.answer.failures:
        raise InputError(f"{task.policy} could not be simulated: {report.answer.failures[0].reason}")
    names = list(report.over_time)
    runs = {run.policy: run.summary for run in report.answer.runs}
    return {
        "alternatives": names,
        "from_s": report.from_s,
        "until_s": report.until_s,
        "slice_s": report.slice_s,
        "jobs": len(report.starts),
        "figures": [
            {"label": label, "unit": unit, "values": [_figure(runs.get(name), path) for name in names]}
            for label, unit, path in FIGURES
        ],
        "teams": _teams(report, names, runs),
        "longest": [asdict(row) for row in _longest(report.starts, names[0], task.tenant)],
        "notes": list(window.trace.notes),
    }


def _figure(summary: Summary | None, path: Sequence[str]) -> float | None:
    found: Any = None if summary is None else summary.to_json()
    for key in path:
        found = None if found is None else found[key]
    return None if found is None else float(found)


def _teams(report: ShadowReport, names: Sequence[str], runs: Mapping[str, Summary]) -> list[dict[str, Any]]:
    """One row for each team, those whose jobs waited longest in Slurm first."""
    from fairlead.studies.shadow.shadow_report import verdicts

    sentences = {name: verdicts(audit) for name, audit in report.audits.items()}
    hours = {name: _by_slice(report, rows) for name, rows in report.over_time.items()}
    teams = sorted({team for by_team in hours.values() for team in by_team})
    rows: list[tuple[float, dict[str, Any]]] = []
    for team in teams:
        alternatives: list[dict[str, Any]] = []
        for name in names:
            slices = hours[name].get(team, _Slices([], []))
            summary, audited = runs.get(name), report.audits[name].tenants.get(team)
            of_team = None if summary is None else summary.tenants.get(team)
            alternatives.append(
                {
                    "mean_wait_s": None if of_team is None else of_team.wait_s["mean"],
                    "waiting_hours": sum(slices.waiting),
                    "speed_hours": sum(slices.speed),
                    "sharing_incentive": None if audited is None else audited.sharing_incentive,
                    "verdict": sentences[name].get(team, ""),
                    "waiting": slices.waiting,
                    "speed": slices.speed,
                }
            )
        rows.append((-alternatives[0]["waiting_hours"], {"team": team, "alternatives": alternatives}))
    rows.sort(key=lambda row: (row[0], row[1]["team"]))
    return [row for _, row in rows[:MOST_TEAMS]]


@dataclass(slots=True)
class _Slices:
    """Of one team: in each slice of time, hours that its jobs waited, and GPU-hours in units of speed."""

    waiting: list[float]
    speed: list[float]


def _by_slice(report: ShadowReport, rows: Sequence[TeamHours]) -> dict[str, _Slices]:
    count = 1 + max(
        (round((row.from_s - report.from_s) / report.slice_s) for some in report.over_time.values() for row in some),
        default=0,
    )
    teams: dict[str, _Slices] = {}
    for row in rows:
        slices = teams.setdefault(row.tenant, _Slices([0.0] * count, [0.0] * count))
        k = round((row.from_s - report.from_s) / report.slice_s)
        slices.waiting[k], slices.speed[k] = row.waiting_hours, row.gpu_hours
    return teams


def _longest(starts: Sequence[JobStarts], past: str, tenant: str | None) -> list[JobStarts]:
    """The jobs that waited longest in Slurm, of those that the reader may see."""
    seen = [row for row in starts if row.starts[past] is not None and tenant in (None, row.tenant)]
    seen.sort(key=lambda row: (row.submitted_s - (row.starts[past] or 0.0), row.job))
    return seen[:MOST_JOBS]


if __name__ == "__main__":
    with suppress(OSError):
        os.nice(NICE)
    limit_memory(POLICY_MEMORY_GIB)
    print_answer(lambda: answer_task(ShadowTask(**json.loads(sys.argv[1]))))
