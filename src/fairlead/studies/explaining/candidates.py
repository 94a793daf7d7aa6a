"""Changes that may let a waiting job start earlier. They are guesses until a simulation has confirmed them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from fairlead.model.cluster import MOST_GPUS_PER_NODE, NodeGroup
from fairlead.model.explanation import By, RemedyKind
from fairlead.model.jobs import JobSpec
from fairlead.model.outcomes import Reason
from fairlead.model.quotas import Quota
from fairlead.model.words import counted
from fairlead.rates.estimator import allowed_rates, allowed_types
from fairlead.rounds.state import State
from fairlead.studies.explaining.explain import usable_types
from fairlead.studies.runs.origin import Origin
from fairlead.studies.what_if.changes import (
    AddNodes,
    CancelJob,
    HoldJob,
    Hypothetical,
    ReleaseJob,
    ReturnNode,
    SetTerms,
    SubmitJobs,
)

MOST_OF_A_KIND = 3
MOST_HELD = 4  # jobs that are held together
_WAITS_FOR_GPUS = (
    *(Reason.CAPACITY, Reason.FRAGMENTED, Reason.SHARE, Reason.ORDER),
    *(Reason.QUOTA, Reason.WINDOW, Reason.MIN_RUN, Reason.PREEMPTION_LIMIT, Reason.NODE_DOWN),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    kind: RemedyKind
    what: str  # the beginning of a sentence about the job
    changes: tuple[Hypothetical, ...]
    starts: str  # id of the job that then starts
    by: By = By.OWNER
    command: str | None = None
    so_far: str = ""  # the end of the sentence: what is different now


def candidates(origin: Origin, j: int) -> list[Candidate]:
    """Changes to try for the job, those of its owner first."""
    state = origin.state
    reason = Reason(int(state.reason[j]))
    kinds: list[Iterator[Candidate]] = []
    if reason in (Reason.HELD, Reason.BACK_OFF):
        in_slurm = reason is Reason.HELD and bool(origin.header.more.get("steer"))
        kinds.append(_release(state, j, in_slurm=in_slurm))
    if reason in (*_WAITS_FOR_GPUS, Reason.NEVER_FITS) and not state.done[j]:  # a new submission begins from nothing
        kinds += [_types(state, j), _widths(state, j)]
    if reason in _WAITS_FOR_GPUS:
        kinds += [_holds(state, j), _nodes(state, j)]
    if reason is Reason.QUOTA:
        kinds.append(_quota(state, j))
    if reason is Reason.NEVER_FITS:
        kinds.append(_new_node(origin, j))
    return [candidate for kind in kinds for candidate in islice(kind, MOST_OF_A_KIND)]


def _release(state: State, j: int, *, in_slurm: bool) -> Iterator[Candidate]:
    """The end of its hold or pause. A steered job that is held in Slurm stays on hold until it is released there."""
    id_ = state.specs[j].id
    if in_slurm:
        what = "released where it is held (with scontrol if squeue shows JobHeldAdmin or fairlead-own-hold, else here)"
        yield Candidate(RemedyKind.RELEASE, what, (ReleaseJob(id_),), id_)
        return
    yield Candidate(RemedyKind.RELEASE, "released now", (ReleaseJob(id_),), id_, command=f"fairlead release {id_}")


def _types(state: State, j: int) -> Iterator[Candidate]:
    """Each type that its owner does not allow, in addition to those that are allowed; the fastest first."""
    spec, cluster = state.specs[j], state.cluster
    if not spec.types:
        return
    rates = allowed_rates(replace(spec, types=()), cluster, state.estimator)
    allowed = set(allowed_types(spec, cluster))
    for t in np.argsort(-rates, kind="stable").tolist():
        if rates[t] > 0 and t not in allowed:
            types = (*spec.types, cluster.types[t])
            so_far = f"; allowed types are {', '.join(spec.types)}"
            yield _again(state, replace(spec, types=types), RemedyKind.TYPES, f"on {cluster.types[t]} too", so_far)


def _widths(state: State, j: int) -> Iterator[Candidate]:
    """Smaller widths that it declares, or halves of what it asks for; the widest first."""
    spec, per_step = state.specs[j], state.estimator.samples_per_step
    smaller = [width for width in spec.widths if width < spec.gpus]
    halves = [spec.gpus >> k for k in range(1, spec.gpus.bit_length())]
    for width in sorted(smaller or halves, reverse=True):
        steps = spec.steps
        if steps is not None:  # as many samples as before
            steps *= per_step(spec.model, spec.gpus) / per_step(spec.model, width)
        other = replace(spec, gpus=width, widths=(width,), steps=steps, nodes=None)
        yield _again(state, other, RemedyKind.WIDTH, f"with {counted(width, 'GPU')} instead of {spec.gpus}")


def _again(state: State, other: JobSpec, kind: RemedyKind, what: str, so_far: str = "") -> Candidate:
    """The job is cancelled and submitted again with another description."""
    id_ = other.id
    new = f"{id_}-again"
    while new in state.position:
        new += "-again"
    changes = (CancelJob(id_), SubmitJobs((replace(other, id=new),)))
    return Candidate(kind, f"submitted again {what}", changes, new, so_far=so_far)


def _holds(state: State, j: int) -> Iterator[Candidate]:
    """Jobs of the same tenant that hold GPUs which the job could use, the last to start first; several if one is small."""
    spec, usable = state.specs[j], set(usable_types(state, j))
    own = np.flatnonzero((state.held_gpus[: state.jobs] > 0) & (state.tenant[: state.jobs] == state.tenant[j]))
    own = own[np.argsort(-state.since_s[own], kind="stable")]
    gpus = {
        k: sum(n for t, n in state.cluster.gpus_by_type(state.spots[k]).items() if t in usable) for k in own.tolist()
    }
    held = [k for k in own.tolist() if gpus[k]]
    for k in held[: MOST_OF_A_KIND - 1]:
        yield _hold(state, j, [k])
    enough = list[int]()
    while len(enough) < min(len(held), MOST_HELD) and sum(gpus[k] for k in enough) < spec.gpus:
        enough.append(held[len(enough)])
    if len(enough) > 1:
        yield _hold(state, j, enough)


def _hold(state: State, j: int, others: list[int]) -> Candidate:
    ids = [state.specs[k].id for k in others]
    gpus = counted(int(state.held_gpus[others].sum()), "GPU")
    what = f"after a hold of {', '.join(ids)}, which {'holds' if len(ids) == 1 else 'hold'} {gpus}"
    changes = tuple(HoldJob(id_) for id_ in ids)
    return Candidate(RemedyKind.HOLD, what, changes, state.specs[j].id, command=f"fairlead hold {' '.join(ids)}")


def _nodes(state: State, j: int) -> Iterator[Candidate]:
    """Nodes of its types that are down, the largest first."""
    cluster, usable = state.cluster, usable_types(state, j)
    down = np.flatnonzero(~state.node_up & (cluster.node_gpus > 0) & np.isin(cluster.node_type, usable))
    for node in down[np.argsort(-cluster.node_gpus[down], kind="stable")].tolist():
        name = cluster.nodes[node]
        what = f"with node {name} up again"
        yield Candidate(RemedyKind.NODE, what, (ReturnNode(name),), state.specs[j].id, By.OPERATOR)


def _quota(state: State, j: int) -> Iterator[Candidate]:
    """As many more GPUs of its tenant's own as the job asks for, of each type that the tenant has a quota for."""
    spec, u = state.specs[j], int(state.tenant[j])
    usable = [state.cluster.types[t] for t in usable_types(state, j)]
    for quota in state.quotas_of(u):
        if quota.type in usable:
            more = Quota(quota.type, quota.nominal + spec.gpus, quota.borrowing_limit, quota.lending_limit)
            what = f"with a quota of {more.nominal} {quota.type} for tenant {spec.tenant}, in place of {quota.nominal}"
            yield Candidate(RemedyKind.QUOTA, what, (SetTerms(spec.tenant, None, (more,)),), spec.id, By.OPERATOR)


def _new_node(origin: Origin, j: int) -> Iterator[Candidate]:
    """A new node of a type that it allows."""
    spec, cluster = origin.state.specs[j], origin.state.cluster
    known = origin.header.profile.gpus
    size = min(spec.gpus, MOST_GPUS_PER_NODE)
    for gpu in dict.fromkeys(spec.types or cluster.gpu):
        if gpu in known:
            what = f"with a new node of {size} {gpu}"
            yield Candidate(RemedyKind.ADD, what, (AddNodes(NodeGroup(1, gpu, size)),), spec.id, By.OPERATOR)
