"""The initial state of a run in the header of its journal: readable for people and checkers, exact for replays."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import asdict
from typing import Any

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.lifecycle import HAS_GPUS, Phase
from fairlead.model.outcomes import Reason
from fairlead.rates.estimator import Estimator
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State


def beginning_to_json(state: State) -> dict[str, Any]:
    """The state as JSON: `snapshot` is complete; jobs, in order of arrival, and nodes are repeated in readable form."""
    return {
        "time_s": state.now_s,
        "down": [
            state.cluster.nodes[n] for n in np.flatnonzero(~state.node_up & (state.cluster.node_gpus > 0)).tolist()
        ],
        "usable": {
            state.cluster.nodes[n]: int(state.nodes.usable[n])
            for n in np.flatnonzero(state.nodes.usable < state.cluster.node_gpus).tolist()
        },
        "jobs": [_job(state, j) for j in range(state.jobs)],
        "snapshot": b64encode(dump(state)).decode("ascii"),
    }


def beginning_from_json(beginning: dict[str, Any], cluster: Cluster, estimator: Estimator) -> State:
    try:
        body = b64decode(beginning["snapshot"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the journal's beginning is damaged ({type(error).__name__}: {error})") from None
    return load(body, cluster, estimator)


def _job(state: State, j: int) -> dict[str, Any]:
    phase = Phase(int(state.phase[j]))
    row: dict[str, Any] = {"job": asdict(state.specs[j]), "phase": phase.name.lower(), "samples": float(state.done[j])}
    if state.reason[j]:
        row["reason"] = Reason(int(state.reason[j])).code
    if phase in HAS_GPUS:
        row["holds"] = {state.cluster.nodes[node]: count for node, count in state.spots[j]}
        row["since_s"] = float(state.since_s[j]) if state.spots[j] else None
        row["rate"] = float(state.rate[j])
        row["resume_s"] = max(float(state.resume_s[j]), float(state.at_s[j]))
    return row
