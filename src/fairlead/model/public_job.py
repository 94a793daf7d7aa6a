"""A job's public row: what the service shows about a job, declared once.

`PublicJob` is the declaration. The API's response model, its OpenAPI schema and the columns of `fairlead queue` are
derived from it. The row is computed from `JobFacts`, whose fields are the columns of the service's table of jobs.

To add a public field, declare it in `PublicJob` and compute it in `public_job`. If it needs a fact that is not stored
yet, declare that in `JobFacts`, read it from the scheduler's state in service/store/job_rows.py and add a migration to
service/store/tables.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from fairlead.model.errors import FairleadError
from fairlead.model.jobs import JobSpec
from fairlead.model.phases import ENDED, Phase

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_T = TypeVar("_T", bound="DataclassInstance")
SUBMITTED = "submitted"  # acknowledged, but not yet accepted by the scheduler
OWN_ID = "j([1-9][0-9]{0,8}-)?[1-9][0-9]{0,17}"  # j12, or j2-12 in the second incarnation of a store
JOB_ID = f"({OWN_ID}|[1-9][0-9]{{0,17}}(_[0-9]{{1,9}})?)"  # or that of Slurm: 12, or 12_3 for a task of an array
PHASE_NAMES = tuple(phase.name.lower() for phase in Phase)  # by number
ENDED_PHASES = tuple(PHASE_NAMES[phase] for phase in ENDED)
PUBLIC_PHASES = (SUBMITTED, *PHASE_NAMES)
_HAS_EXIT_CODE = ("finished", "failed")
_HAS_REASON = ("waiting", "held", "failed")


def _shown(description: str, heading: str | None = None, **constraints: Any) -> dict[str, Any]:
    """A field's sentence in the OpenAPI document and, if it is a column of `fairlead queue`, its heading."""
    return {"description": description, "heading": heading, **constraints}


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """The GPUs that a job has now."""

    type: str = field(metadata=_shown('The GPU type; "mixed" where there are several.'))
    gpus: int = field(metadata=_shown("How many there are."))
    nodes: dict[str, int] = field(metadata=_shown("How many there are on each node."))
    since_s: float = field(metadata=_shown("Since when, in seconds since 1970."))


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job: samples always, a fraction and steps if its owner declared the number of steps."""

    samples: float = field(metadata=_shown("Samples processed by now, on the straight line from the last report."))
    total_samples: float | None = field(metadata=_shown("Samples that the declared steps come to."))
    samples_per_s: float = field(metadata=_shown("The present speed."))
    fraction: float | None = field(metadata=_shown("The part that is done, from 0 to 1."))
    steps: float | None = field(metadata=_shown("Steps done by now."))
    total_steps: float | None = field(metadata=_shown("Steps declared by the owner."))


@dataclass(frozen=True, slots=True)
class PublicJob:
    """A job as every user who may see it sees it. Times are seconds since 1970."""

    # Without this, pydantic trusts an instance; with it, a response is checked field by field.
    __pydantic_config__: ClassVar[dict[str, str]] = {"revalidate_instances": "always"}

    id: str = field(metadata=_shown("The job's id.", "job"))
    name: str = field(metadata=_shown("Its name in the job file.", "name"))
    tenant: str = field(metadata=_shown("Who is charged for it.", "tenant"))
    phase: str = field(metadata=_shown("Where it is in its life.", "phase", pattern=f"^({'|'.join(PUBLIC_PHASES)})$"))
    held: HeldGpus | None = field(metadata=_shown("The GPUs that it has now; null: none.", "where, or why not"))
    reason: str | None = field(
        metadata=_shown(
            "Why it waits, is on hold or failed: for a job that waits a stable code, a colon and a sentence."
        )
    )
    position: int | None = field(
        metadata=_shown(
            "Its place among all waiting jobs in order of arrival, from 1; null: it does not wait.", "place"
        )
    )
    gpus: int = field(metadata=_shown("GPUs at its reference width.", "GPUs"))
    progress: JobProgress | None = field(
        metadata=_shown("How far it is; null until the scheduler has taken it.", "progress")
    )
    submitted_s: float = field(metadata=_shown("When it was submitted.", "age"))
    first_start_s: float | None = field(metadata=_shown("When it first got GPUs."))
    end_s: float | None = field(metadata=_shown("When it ended."))
    gpu_hours: float = field(metadata=_shown("GPU-hours that it has had so far.", "GPU-hours"))
    model: str = field(metadata=_shown("Whose speeds it has."))
    widths: tuple[int, ...] = field(metadata=_shown("All GPU counts that it can run on."))
    types: tuple[str, ...] = field(metadata=_shown("GPU types that it may use; empty: any that has the memory."))
    weight: float = field(metadata=_shown("Its weight among its tenant's jobs."))
    leases: int = field(
        metadata=_shown(
            "The number of its newest lease: how often it was started, or from the next thousand on after a restore."
        )
    )
    restarts: int = field(metadata=_shown("How often it was started again after it had run."))
    exit_code: int | None = field(metadata=_shown("Its exit code, once it has finished or failed."))


# Field name -> heading, in the order of the columns.
COLUMNS: dict[str, str] = {
    one.name: one.metadata["heading"] for one in fields(PublicJob) if one.metadata["heading"] is not None
}


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the scheduler knew about a job at its last event: a row of the table of jobs."""

    position: int
    id: str
    tenant: str
    phase: str
    arrival_s: float
    first_start_s: float | None
    end_s: float | None
    since_s: float | None
    type: str | None
    gpus: int
    spot: dict[str, int]  # node -> GPUs
    done: float
    total: float | None
    rate: float
    at_s: float
    resume_s: float
    attained_gpu_s: float
    run_s: float
    leases: int
    restarts: int
    reason: str | None


def public_job(
    name: str,
    submitted_s: float,
    spec: JobSpec,
    facts: JobFacts | None,
    exit_code: int | None,
    now_s: float,
    position: int | None = None,
) -> PublicJob:
    """The row at `now_s`; `facts` is None until the scheduler has accepted the job."""
    phase = SUBMITTED if facts is None else facts.phase
    return PublicJob(
        id=spec.id,
        name=name,
        tenant=spec.tenant,
        phase=phase,
        held=None if facts is None else _held(facts),
        reason=(facts.reason or None) if facts is not None and phase in _HAS_REASON else None,
        position=position,
        gpus=spec.gpus,
        progress=None if facts is None else _progress(facts, spec.steps, now_s),
        submitted_s=submitted_s,
        first_start_s=None if facts is None else facts.first_start_s,
        end_s=None if facts is None else facts.end_s,
        gpu_hours=0.0 if facts is None else _gpu_hours(facts, now_s),
        model=spec.model,
        widths=spec.widths,
        types=spec.types,
        weight=spec.weight,
        leases=0 if facts is None else facts.leases,
        restarts=0 if facts is None else facts.restarts,
        exit_code=exit_code,
    )


def has_exit_code(facts: JobFacts) -> bool:
    """Whether the job's last lease may have left an exit code."""
    return facts.phase in _HAS_EXIT_CODE


def read_public_job(document: Mapping[str, Any]) -> PublicJob:
    """The row as the API sent it; fields that this version does not know are ignored."""
    parts: dict[str, Any] = {}
    if document.get("held") is not None:
        parts["held"] = read_fields(HeldGpus, document["held"])
    if document.get("progress") is not None:
        parts["progress"] = read_fields(JobProgress, document["progress"])
    return read_fields(PublicJob, {**document, **parts})


def read_fields(kind: type[_T], document: Mapping[str, Any]) -> _T:
    """The fields of a row in a document of the service; others are ignored."""
    names = [one.name for one in fields(kind)]
    missing = [name for name in names if name not in document]
    if missing:
        raise FairleadError(
            f"the service did not send {', '.join(missing)} of a job; its version differs from that of this command"
        )
    return kind(**{name: document[name] for name in names})


def _held(facts: JobFacts) -> HeldGpus | None:
    if not facts.gpus:
        return None
    assert facts.type is not None, "GPUs have a type"
    assert facts.since_s is not None, "GPUs are held since some time"
    return HeldGpus(facts.type, facts.gpus, facts.spot, facts.since_s)


def _progress(facts: JobFacts, steps: float | None, now_s: float) -> JobProgress:
    """The progress extrapolated linearly from the last report, never past the declared end."""
    ran_s = max(now_s - max(facts.at_s, facts.resume_s), 0.0) if facts.gpus else 0.0
    done, total = facts.done + facts.rate * ran_s, facts.total
    if total is not None:
        done = min(done, total)
    fraction = 1.0 if facts.phase == "finished" else None if not total else done / total
    return JobProgress(
        samples=done,
        total_samples=total,
        samples_per_s=facts.rate,
        fraction=fraction,
        steps=None if steps is None or fraction is None else steps * fraction,
        total_steps=steps,
    )


def _gpu_hours(facts: JobFacts, now_s: float) -> float:
    running_s = 0.0 if facts.since_s is None else max(now_s - facts.since_s, 0.0)
    return (facts.attained_gpu_s + facts.gpus * running_s) / 3600
