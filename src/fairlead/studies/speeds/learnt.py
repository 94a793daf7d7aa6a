"""What a run has learnt of speeds, read from its journal: of nodes, and of one job by the layer that answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fairlead.model.errors import InputError, NotFoundError
from fairlead.rates.three_layer import ThreeLayer
from fairlead.rounds.state import State
from fairlead.studies.journals.folding import state_at


def learnt_of_nodes(path: Path) -> list[dict[str, Any]]:
    """Each node's speed over what the profile says of its type, for all jobs.

    None where no job ran on that node alone, or where the run kept no such number (it senses types or servers only).
    """
    state, learner = _folded(path)
    cluster = state.cluster
    return [
        {
            "node": name,
            "type": cluster.types[cluster.node_type[node]],
            "relative": learner.factor_of(node),
            "jobs": learner.jobs_seen_on(node),
        }
        for node, name in enumerate(cluster.nodes)
    ]


def learnt_of_job(path: Path, id_: str) -> dict[str, Any]:
    """The rate that is expected of a job on each node it may use, at its reference width or the whole node if that is less."""
    state, learner = _folded(path)
    if id_ not in state.position:
        raise NotFoundError(f'job "{id_}" is not in the journal; `fairlead journal` or the trace lists the ids')
    j = state.position[id_]
    spec, cluster = state.specs[j], state.cluster
    nodes = []
    for node, name in enumerate(cluster.nodes):
        t = int(cluster.node_type[node])
        gpus = min(spec.gpus, int(cluster.node_gpus[node]))
        profile = learner.at(spec.model, t, gpus, 1)
        if state.best_rate[j, t] > 0 and profile > 0:
            nodes.append(
                {
                    "node": name,
                    "type": cluster.types[t],
                    "gpus": gpus,
                    "samples_per_s": learner.predict(j, spec.model, ((node, gpus),)),
                    "profile_samples_per_s": profile,
                    "layer": learner.layer(j, node),
                }
            )
    spread = learner.spread(np.array([j]))[0]
    return {
        "job": id_,
        "model": spec.model,
        "nodes": nodes,
        "spread": dict(zip(cluster.types, spread.tolist(), strict=True)),
    }


def _folded(path: Path) -> tuple[State, ThreeLayer]:
    state = state_at(path)
    if not isinstance(state.estimator, ThreeLayer):
        raise InputError(
            "nothing was learnt in this run; wanted one with --sensing, such as three-layer", path=str(path)
        )
    return state, state.estimator
