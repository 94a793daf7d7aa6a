"""What a run has learnt about speeds, read from its journal: for nodes, and for one job with the layer that knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairlead.model.errors import InputError, NotFoundError
from fairlead.model.events import Cancelled, Failed, Finished
from fairlead.rates.three_layer import ThreeLayer
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.known_factors import KnownFactor, known_factors
from fairlead.rounds.state import State
from fairlead.studies.journals.folding import consistent, open_state, records_until, state_at


@dataclass(frozen=True, slots=True)
class LearntNode:
    node: str
    type: str
    relative: float | None  # to the profile's speed of its type
    jobs: int  # whose votes about it count


@dataclass(frozen=True, slots=True)
class ExpectedRate:
    """The expected rate of a job on one node, with the layer of the estimator that knows it."""

    node: str
    type: str
    gpus: int
    samples_per_s: float
    profile_samples_per_s: float
    layer: str


@dataclass(frozen=True, slots=True)
class LearntJob:
    job: str
    model: str
    nodes: tuple[ExpectedRate, ...]
    spread: Mapping[str, float]  # by type: the rate on several nodes / the rate on the slowest of them alone


def learnt_of_nodes(path: Path) -> list[LearntNode]:
    """Each node's speed relative to the profile's speed of its type, over all jobs.

    None if too few jobs ran on that node alone, or if the run did not learn it (with sensing of types or servers only).
    """
    state = state_at(path)
    learner = _learner(state, path)
    cluster = state.cluster
    return [
        LearntNode(name, cluster.types[cluster.node_type[node]], learner.factor_of(node), learner.jobs_seen_on(node))
        for node, name in enumerate(cluster.nodes)
        if cluster.node_gpus[node]  # it has not left
    ]


def rates_of_tenants(path: Path) -> tuple[KnownFactor, ...]:
    """How the rates of tenants' models are known by type, as policies saw them at the end of the run."""
    return known_factors(state_at(path))


def learnt_of_job(path: Path, id_: str) -> LearntJob:
    """The expected rate of a job on each node that it may use, at its reference width, or on the whole node if that is less.

    It is what was expected at the end of the run, or just before the job ended, because its reports are then forgotten.
    """
    state = _state_before_end(path, id_)
    learner = _learner(state, path)
    if id_ not in state.position:
        raise NotFoundError(f'job "{id_}" is not in the journal; `fairlead journal` or the trace lists the ids')
    j = state.position[id_]
    spec, cluster = state.specs[j], state.cluster
    nodes = []
    for node, name in enumerate(cluster.nodes):
        t = int(cluster.node_type[node])
        if not cluster.node_gpus[node]:
            continue  # it has left
        gpus = min(spec.gpus, int(cluster.node_gpus[node]))
        profile = learner.at(spec.model, t, gpus, 1)
        if state.best_rate[j, t] > 0 and profile > 0:
            nodes.append(
                ExpectedRate(
                    node=name,
                    type=cluster.types[t],
                    gpus=gpus,
                    samples_per_s=learner.predict(j, spec.model, ((node, gpus),)),
                    profile_samples_per_s=profile,
                    layer=learner.layer(j, node),
                )
            )
    spread = learner.spread(np.array([j]))[0]
    return LearntJob(id_, spec.model, tuple(nodes), dict(zip(cluster.types, spread.tolist(), strict=True)))


def _state_before_end(path: Path, id_: str) -> State:
    state = open_state(JournalReader(path).header())
    with consistent(path):
        for record in records_until(path, None):
            if isinstance(record, Finished | Failed | Cancelled) and state.position.get(id_, -1) in record.jobs:
                break
            state.fold(record)
    return state


def _learner(state: State, path: Path) -> ThreeLayer:
    if not isinstance(state.estimator, ThreeLayer):
        raise InputError(
            "nothing was learnt in this run; wanted one with --sensing, such as three-layer", path=str(path)
        )
    return state.estimator
