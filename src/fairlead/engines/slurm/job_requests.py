"""What a job of `squeue` asks for, in our terms: a JobSpec, or the reason why it cannot be one.

    sbatch --gres=gpu:v100:2 -N 2                                 4 GPUs of v100, which it stays bound to
    sbatch --gpus=4 --constraint="a100|h100"                      4 GPUs of one of these types
    sbatch --gpus=4 --comment "fairlead: types=a100,h100 steps=9000 model=bert-base"

Types come from the request, the constraint, the comment and the partition, and only those count that all of them allow.
The model comes from the comment, else from the job's name, else it is a default, and the reading says which.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from fairlead.engines.slurm.machines import SlurmNode
from fairlead.engines.slurm.queue import SlurmJob
from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.model.jobs import LONGEST_S, MOST_STEPS, JobSpec

UNKNOWN_MODEL = "unknown"
NO_GPUS = "it requests no GPUs"
GRACE_S, LONGEST_GRACE_S = 30.0, 3600.0  # between a request to stop and the end, if it is steered


class ModelFrom(StrEnum):
    """How the model of a job is known."""

    COMMENT = "comment"
    NAME = "name"  # a pattern matched the job's name
    DEFAULT = "default"  # nothing shows it


@dataclass(frozen=True, slots=True)
class Site:
    """What requests are read against: the GPU types of the cluster, and what the operator knows about job names."""

    types: tuple[str, ...]
    partitions: Mapping[str, frozenset[str]] = field(default_factory=dict)  # GPU types of each partition
    aliases: Mapping[str, str] = field(default_factory=dict)  # other spellings of GPU types
    models: Sequence[tuple[str, str]] = ()  # (pattern of job names, model); the first that matches counts
    default_model: str = UNKNOWN_MODEL


@dataclass(frozen=True, slots=True)
class SlurmRequest:
    """A job of Slurm in our terms. Its number of nodes is fixed, unless Slurm may spread its GPUs as it likes.

    `limit_s` is an upper bound of how long it runs at a time.
    """

    spec: JobSpec
    limit_s: float | None
    model_from: ModelFrom
    notes: tuple[str, ...] = ()  # what of the request was not understood


@dataclass(frozen=True, slots=True)
class NotARequest:
    """A job that we cannot schedule, and why."""

    id: str
    reason: str


def site_of(
    nodes: Iterable[SlurmNode],
    aliases: Mapping[str, str] | None = None,
    models: Sequence[tuple[str, str]] = (),
    default_model: str = UNKNOWN_MODEL,
) -> Site:
    """The site that `sinfo` shows. GPUs without a type get the name that the alias `gpu` has."""
    partitions: dict[str, set[str]] = {}
    types: dict[str, None] = {}
    for node in nodes:
        names = [canonical_gpu(type_ or "gpu", aliases) for type_ in node.gpus]
        types.update(dict.fromkeys(names))
        for partition in node.partitions:
            partitions.setdefault(partition, set()).update(names)
    frozen = {name: frozenset(types_) for name, types_ in partitions.items()}
    return Site(tuple(types), frozen, aliases or {}, models, default_model)


def read_request(job: SlurmJob, site: Site, arrival_s: float) -> SlurmRequest | NotARequest:
    """The job as we would schedule it. `arrival_s` is passed in because Slurm's time changes when a job is requeued."""
    amounts = job.gpus_per_node or job.gpus_per_job or job.gpus_per_task
    if job.gpus_per_socket and not amounts:
        return NotARequest(job.id, "it requests GPUs by socket, whose number depends on the node")
    gpus = _gpus(job)
    if gpus < 1:
        return NotARequest(job.id, NO_GPUS)
    if "+" in job.id:
        return NotARequest(job.id, "it is a component of a heterogeneous job")
    if len(amounts) > 1:
        return NotARequest(job.id, f"it requests several types at once ({', '.join(sorted(amounts))})")
    wishes = read_comment(job.comment)
    notes = list(wishes.notes)
    types = _types(job, next(iter(amounts)), wishes, site, notes)
    if types is not None and not types:
        return NotARequest(job.id, _nowhere(job, wishes, site))
    model, model_from = _model(job, wishes, site)
    try:
        tenant = job.account or job.user or "unknown"
        limit_s = None if job.time_limit_s is None else min(max(job.time_limit_s, 1.0), LONGEST_S)
        spec = JobSpec(
            *(job.id, tenant, model, arrival_s, gpus, wishes.steps),
            types=types or (),
            nodes=_nodes(job, gpus),
            run_limit_s=limit_s,
        )
    except InputError as error:
        return NotARequest(job.id, str(error))
    return SlurmRequest(spec, job.time_limit_s, model_from, tuple(notes))


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a comment that starts with `fairlead:` declares."""

    types: tuple[str, ...] = ()
    steps: float | None = None
    model: str = ""
    grace_s: float = GRACE_S
    notes: tuple[str, ...] = ()


def read_comment(comment: str) -> Wishes:
    """`fairlead: types=a100,h100 steps=9000 model=bert-base grace=60`. Any other comment declares nothing."""
    _, ours, rest = comment.partition("fairlead:")
    words = [word.partition("=") for word in rest.split() if "=" in word] if ours else []
    fields = {key: text.strip(",;") for key, _, text in words}
    unknown = [key for key in fields if key not in ("types", "steps", "model", "grace")]
    notes = [f'the comment has "{key}=", which is not known; wanted types, steps, model or grace' for key in unknown]
    steps, grace_s = _positive(fields.get("steps"), MOST_STEPS), _positive(fields.get("grace"), LONGEST_GRACE_S)
    for key, number in (("steps", steps), ("grace", grace_s)):
        if key in fields and number is None:
            notes.append(f"the comment has {key}={fields[key]}; wanted a number above 0")
    types = tuple(filter(None, re.split(r"[,|]", fields.get("types", ""))))
    return Wishes(types, steps, fields.get("model", ""), grace_s or GRACE_S, tuple(notes))


def _positive(text: str | None, most: float) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 < number <= most else None


def _nodes(job: SlurmJob, gpus: int) -> int | None:
    """The nodes that the job must have, with the same number of GPUs on each; None if Slurm may spread them."""
    spread = bool(job.gpus_per_job) and not job.gpus_per_node and job.nodes == 1
    return None if spread or gpus % job.nodes else job.nodes


def _gpus(job: SlurmJob) -> int:
    if job.gpus_per_node:
        return sum(job.gpus_per_node.values()) * job.nodes
    if job.gpus_per_job:
        return sum(job.gpus_per_job.values())
    return sum(job.gpus_per_task.values()) * job.tasks


def _types(job: SlurmJob, requested: str, wishes: Wishes, site: Site, notes: list[str]) -> tuple[str, ...] | None:
    """The types that every part of the request allows, in the order of the site; None if all of them are."""
    allowed: list[Collection[str]] = []
    if requested:
        allowed.append([canonical_gpu(requested, site.aliases)])
    constraint = constrained_types(job.features, site)
    if constraint:
        allowed.append(constraint)
    if wishes.types:
        allowed.append(known_types(wishes.types, site))
    in_partitions = _types_of_partitions(job.partition, site)
    if in_partitions is not None:
        allowed.append(in_partitions)
    others = [word for word in _words(job.features) if not known_types([word], site)]
    if others:
        notes.append(f"the constraint has {', '.join(others)}, which is not a GPU type and does not count here")
    if not allowed:
        return None
    types = tuple(type_ for type_ in site.types if all(type_ in some for some in allowed))
    return None if types == site.types else types


def constrained_types(features: str, site: Site) -> tuple[str, ...]:
    """The GPU types that a constraint such as `a100|h100&nvlink` names; none if an alternative names no type."""
    alternatives = [known_types(_words(part), site) for part in features.split("|")]
    return tuple(dict.fromkeys(type_ for types in alternatives for type_ in types)) if all(alternatives) else ()


def known_types(names: Iterable[str], site: Site) -> list[str]:
    """Those of the names that are GPU types of the site, however they are spelled."""
    known = []
    for name in names:
        try:
            type_ = canonical_gpu(name, site.aliases)
        except InputError:
            continue
        if type_ in site.types:
            known.append(type_)
    return known


def _words(features: str) -> list[str]:
    """The features that a constraint mentions, without its operators and counts."""
    return [word for word in re.split(r"[\[\]()&|,]|\*\d+", features) if word]


def _types_of_partitions(partition: str, site: Site) -> frozenset[str] | None:
    """The types of the job's partitions, of which it may list several; None if Slurm showed none of them."""
    known = [site.partitions[name] for name in partition.split(",") if name in site.partitions]
    return frozenset().union(*known) if known else None


def _nowhere(job: SlurmJob, wishes: Wishes, site: Site) -> str:
    parts = [
        f"its request {', '.join(filter(None, (*job.gpus_per_node, *job.gpus_per_job, *job.gpus_per_task)))}",
        f"its constraint {job.features}",
        f"its comment types={','.join(wishes.types)}",
        f"its partition {job.partition}",
    ]
    named = [part for part in parts if not part.endswith((" ", "="))]
    return f"no GPU type of the cluster ({', '.join(site.types)}) satisfies {' and '.join(named)}"


def _model(job: SlurmJob, wishes: Wishes, site: Site) -> tuple[str, ModelFrom]:
    if wishes.model:
        return wishes.model, ModelFrom.COMMENT
    by_name = next((model for pattern, model in site.models if fnmatchcase(job.name, pattern)), None)
    return (by_name, ModelFrom.NAME) if by_name else (site.default_model, ModelFrom.DEFAULT)
