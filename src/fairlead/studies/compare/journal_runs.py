"""A run as its journal has it, as a comparison of one policy: so that a finished run has the page of a comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import InputError
from fairlead.model.events import Arrived, Forgotten, PolicySet
from fairlead.model.jobs import JobSpec
from fairlead.model.phases import Phase
from fairlead.model.units import format_duration
from fairlead.policies.policy import AnyPolicy
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.journal import Header, JournalReader
from fairlead.rounds.loop import Run
from fairlead.rounds.state import State
from fairlead.sim.loops import loop_for
from fairlead.sim.truth import World
from fairlead.studies.compare.cases import Case, record_of
from fairlead.studies.compare.compare import Comparison, answer_of, compared_policy
from fairlead.studies.fairness.journal_audit import Auditor
from fairlead.studies.journals.folding import consistent, policy_of, settings_of
from fairlead.studies.journals.worlds import world_of
from fairlead.studies.policy_lab.plugins import PolicyRef
from fairlead.studies.runs.simulate import Setup
from fairlead.studies.runs.summary import FinishedJobs, finished_jobs, summarise
from fairlead.studies.runs.timeline import Timeline
from fairlead.traces.formats import Trace

FORMAT = "journal"


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in the list of a run; None where it has not come to that."""

    id: str
    tenant: str
    model: str
    gpus: int
    phase: str
    arrived_s: float  # after the first arrival
    waited_s: float | None
    jct_s: float | None
    ftf: float | None
    gpu_hours: float
    restarts: int


@dataclass(frozen=True, slots=True)
class JournalRun:
    comparison: Comparison
    jobs: list[JobLine]


def read_run(path: Path) -> JournalRun:
    """The run of a whole journal: one that begins in the middle, or has forgotten jobs, is refused."""
    reader = JournalReader(path)
    header = reader.header()
    if "begins" in header.more:
        raise _not_whole(path, "begins in the middle of a run")
    policy, notes = policy_of(header), list[str]()
    line, auditor, run = Timeline(header.cluster), Auditor.of(header, promised=policy_of(header).promises), Run()
    specs: list[JobSpec] = []
    decisions = 0
    with consistent(path):
        for record in reader.records():
            match record:
                case Forgotten():
                    raise _not_whole(path, "is of a service that has forgotten ended jobs since")
                case Arrived():
                    specs.append(record.spec)
                case PolicySet():
                    began_s = specs[0].arrival_s if specs else record.time_s
                    notes.append(f"after {format_duration(record.time_s - began_s)}, {record.policy} decided")
                case Decision():
                    decisions += 1
                    run.rounds += record.cause is Cause.ROUND
            line.decision(record) if isinstance(record, Decision) else line.event(record)
            auditor.fold(record)
    if not specs:
        raise InputError("no job arrived in this run; there is nothing to show", path=str(path))
    setup = _setup(header, policy, specs, path)
    finished = finished_jobs(auditor.state)
    summary = summarise(auditor.state, finished)
    if not loop_for(policy).places:
        summary = replace(summary, migrations_per_job=None, restarts_per_job=None)  # a task never moves
    case = Case(
        PolicyRef(policy.name, value=policy), None, setup.world.seed, setup, keep_stays=True, audit=True, key=""
    )
    record_ = record_of(case, policy.name, line, summary, finished, run)
    promises = tuple(auditor.audit().promises) if len({spec.tenant for spec in specs}) > 1 else ()
    record_ = replace(record_, decisions=decisions, promises=promises)
    answer = answer_of(
        setup,
        (compared_policy(policy, setup, "the journal"),),
        seeds=(setup.world.seed,),
        loads=(None,),
        assumptions=tuple(notes),
        records=[record_],
    )
    return JournalRun(Comparison(answer, setup), _lines(auditor.state, finished))


def _setup(header: Header, policy: AnyPolicy, specs: list[JobSpec], path: Path) -> Setup:
    jobs = tuple(sorted(specs, key=lambda spec: (spec.arrival_s, spec.id)))
    return Setup(
        cluster=header.cluster,
        trace=Trace(jobs, path.name.partition(".")[0], FORMAT),
        profile=header.profile,
        policy=policy,
        settings=settings_of(header),
        world=world_of(header) or World(),
        restart_s=header.restart_s,
        tenant_weight=header.tenant_weight,
        sensing=Sensing(header.more.get("sensing", Sensing.TABLE)),
    )


def _lines(state: State, finished: FinishedJobs) -> list[JobLine]:
    """All jobs in the order of their arrival."""
    row = {int(j): k for k, j in enumerate(finished.jobs)}
    first_s = float(np.min(state.arrival_s[: state.jobs]))
    lines = []
    for j, spec in enumerate(state.specs):
        k = row.get(j)
        alone_s = 0.0 if k is None else float(finished.alone_s[k])
        lines.append(
            JobLine(
                id=spec.id,
                tenant=spec.tenant,
                model=spec.model,
                gpus=spec.gpus,
                phase=Phase(int(state.phase[j])).name.lower(),
                arrived_s=float(state.arrival_s[j]) - first_s,
                waited_s=None if k is None else float(finished.wait_s[k]),
                jct_s=None if k is None else float(finished.jct_s[k]),
                ftf=float(finished.jct_s[k]) / alone_s if k is not None and alone_s > 0 else None,
                gpu_hours=float(state.attained_gpu_s[j]) / 3600,
                restarts=int(state.restarts[j]),
            )
        )
    return lines


def _not_whole(path: Path, why: str) -> InputError:
    return InputError(f"this journal {why}; a page needs the whole run", path=str(path))
