"""The answer to "why": what `fairlead explain` prints and the API returns about one job, declared once.

Times are those of the run: seconds since 1970 in a service, seconds since the start in a journal of a simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

from fairlead.model.public_job import read_fields

_CHECKED: dict[str, str] = {"revalidate_instances": "always"}  # pydantic then checks a response field by field


def _says(description: str) -> dict[str, str]:
    """A field's sentence in the OpenAPI document."""
    return {"description": description}


class RemedyKind(StrEnum):
    """The closed set of things that may help."""

    TYPES = "types"  # submit it again, with more GPU types allowed
    WIDTH = "width"  # submit it again, with fewer GPUs
    HOLD = "hold"  # hold another job of the same tenant
    RELEASE = "release"  # end its own hold or pause
    QUOTA = "quota"  # let its tenant hold more
    NODE = "node"  # bring a node back
    ADD = "add"  # add a node


class By(StrEnum):
    OWNER = "owner"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds GPUs which this job could use, or all such jobs of other tenants together."""

    __pydantic_config__: ClassVar[dict[str, str]] = _CHECKED

    job: str | None = field(
        metadata=_says("Its id; null for jobs of tenants that the caller may not see, which are counted.")
    )
    tenant: str | None = field(metadata=_says("Its tenant; null with the id."))
    jobs: int = field(metadata=_says("How many jobs these are."))
    gpus: dict[str, int] = field(metadata=_says("GPUs that they hold, by type, of the types that this job may use."))
    end_s: float | None = field(metadata=_says("When it ends at its present speed, if its length is declared."))
    keeps_until_s: float | None = field(
        metadata=_says("Until when no decision takes its GPUs away, if that is later than now.")
    )


@dataclass(frozen=True, slots=True)
class TypeSpeed:
    """How fast the job is, or would be, on a GPU type, and why it is not there."""

    __pydantic_config__: ClassVar[dict[str, str]] = _CHECKED

    type: str = field(metadata=_says("The GPU type."))
    relative: float = field(
        metadata=_says("Speed at the reference width, relative to the fastest type that it may use.")
    )
    free: int = field(metadata=_says("GPUs of the type that are free now."))
    note: str = field(metadata=_says("Why it is, or is not, on this type."))
    samples_per_s: float = field(default=0.0, metadata=_says("The same speed in samples; 0: it cannot run there."))


@dataclass(frozen=True, slots=True)
class Stay:
    """The GPUs that a job holds, and what keeps it there."""

    __pydantic_config__: ClassVar[dict[str, str]] = _CHECKED

    gpus: int = field(metadata=_says("How many GPUs it holds."))
    type: str = field(metadata=_says('Their type; "mixed" where there are several.'))
    nodes: dict[str, int] = field(metadata=_says("How many on each node."))
    since_s: float = field(metadata=_says("Since when."))
    keeps_until_s: float | None = field(
        metadata=_says("Until when no decision takes them away, if that is later than now.")
    )
    end_s: float | None = field(metadata=_says("When it ends at its present speed, if its length is declared."))
    measured: bool = field(metadata=_says("It runs here so that its model is measured on this type."))
    speeds: tuple[TypeSpeed, ...] = field(metadata=_says("Its speed by type, the fastest first."))


@dataclass(frozen=True, slots=True)
class Takeover:
    """How a job came off its GPUs, and which jobs have them since."""

    __pydantic_config__: ClassVar[dict[str, str]] = _CHECKED

    time_s: float = field(metadata=_says("When."))
    how: str = field(metadata=_says("stopped by a decision, lost with its node, refused by the engine, or failed."))
    detail: str = field(metadata=_says("What the engine reported."))
    jobs: tuple[str, ...] = field(
        metadata=_says("Ids of the jobs that started on its nodes, as far as the caller may see them.")
    )
    others: int = field(metadata=_says("Further jobs that started on its nodes."))
    gain: float = field(metadata=_says("What all changes of that decision gained together, in GPUs at full speed."))


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that would make the job start earlier. It was simulated before it is offered."""

    __pydantic_config__: ClassVar[dict[str, str]] = _CHECKED

    kind: RemedyKind = field(metadata=_says("What kind of change it is."))
    sentence: str = field(metadata=_says("The change, and when the job then starts."))
    command: str | None = field(metadata=_says("What to type, where one command does it."))
    by: By = field(metadata=_says("Who can do it."))
    start_s: float = field(metadata=_says("When the job then starts."))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is where it is."""

    __pydantic_config__: ClassVar[dict[str, str]] = _CHECKED

    job: str = field(metadata=_says("The job's id."))
    tenant: str = field(metadata=_says("Its tenant."))
    phase: str = field(metadata=_says("Where it is in its life."))
    time_s: float = field(metadata=_says("The time of this answer."))
    code: str = field(metadata=_says("A stable word: the reason for which it waits, or its phase."))
    sentence: str = field(metadata=_says("The reason in words, with the numbers of the decision that gave it."))
    decided_s: float | None = field(metadata=_says("The decision or event since which the reason applies."))
    gpus: int = field(metadata=_says("GPUs that it asks for."))
    types: tuple[str, ...] = field(metadata=_says("Types of this cluster that it may use and on which it runs."))
    position: int | None = field(
        metadata=_says("Its place among the waiting jobs in order of arrival, from 1; null: it does not wait.")
    )
    waiting: int | None = field(metadata=_says("How many jobs wait, of all tenants; null: it has ended long ago."))
    waited_s: float | None = field(metadata=_says("Time without GPUs since it arrived; null as above."))
    ran_s: float | None = field(metadata=_says("Time with GPUs; null as above."))
    restarts: int = field(metadata=_says("How often it was started again after it had run."))
    lost_gpu_hours: float | None = field(
        metadata=_says("GPU-hours of restarts: restoring its state, and lost work that it does again; null as above.")
    )
    terms: dict[str, float] = field(metadata=_says("The policy's own numbers about it at that decision."))
    holders: tuple[Holder, ...] = field(metadata=_says("Jobs that hold GPUs which it could use."))
    stay: Stay | None = field(metadata=_says("For a job that has GPUs: why these."))
    takeover: Takeover | None = field(metadata=_says("For a job that had GPUs: how it came off them."))
    expected_s: float | None = field(metadata=_says("When it starts if nothing is changed, by a simulation."))
    remedies: tuple[Remedy, ...] = field(metadata=_says("What would make it start earlier."))
    unchecked: str | None = field(metadata=_says("Why remedies were not checked, or not all of them."))
    speeds: tuple[TypeSpeed, ...] = field(
        default=(), metadata=_says("For a job without GPUs that may get some: its speed by type, the fastest first.")
    )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_explanation(document: Mapping[str, Any]) -> Explanation:
    """The answer as the API sent it; fields that this version does not know are ignored."""
    rows, one = document.get, read_fields
    stay, takeover = document.get("stay"), document.get("takeover")
    parts: dict[str, Any] = {
        "types": tuple(rows("types", ())),
        "holders": tuple(one(Holder, row) for row in rows("holders", ())),
        "remedies": tuple(_remedy(row) for row in rows("remedies", ())),
        "speeds": tuple(one(TypeSpeed, row) for row in rows("speeds", ())),
    }
    if stay is not None:
        parts["stay"] = one(Stay, {**stay, "speeds": tuple(one(TypeSpeed, row) for row in stay.get("speeds", ()))})
    if takeover is not None:
        parts["takeover"] = one(Takeover, {**takeover, "jobs": tuple(takeover.get("jobs", ()))})
    return one(Explanation, {**document, **parts})


def _remedy(row: Mapping[str, Any]) -> Remedy:
    remedy = read_fields(Remedy, row)
    return replace(remedy, kind=RemedyKind(remedy.kind), by=By(remedy.by))
