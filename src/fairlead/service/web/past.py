"""The cluster at an earlier time, in a separate process because it may fold many records.

`python -m fairlead.service.web.past TASK` prints it as JSON, with the jobs of the reader's tenant only.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.model.phases import Phase
from fairlead.rounds.state import State
from fairlead.service.api.apart import output_apart
from fairlead.service.api.error_responses import ApiError
from fairlead.service.store.directory import StateDirectory, read_past
from fairlead.service.store.rows import GpuHolder, NodeRow

PATIENCE_S = 60.0


async def past_apart(
    directory: StateDirectory, time_s: float, tenant: str | None
) -> tuple[list[NodeRow], list[GpuHolder]]:
    """Nodes and jobs with GPUs at the time, by a child process; `tenant` is that of the reader, None sees all."""
    task = json.dumps({"directory": str(directory.path), "time_s": time_s, "tenant": tenant})
    try:
        answer = json.loads(await asyncio.wait_for(output_apart("fairlead.service.web.past", task), PATIENCE_S))
    except TimeoutError:
        raise ApiError(429, "too_busy", "folding the log took too long", "choose a later time") from None
    if answer is None:
        raise ApiError(410, "events_archived", "the log does not have this time any more", "choose a later time")
    return [NodeRow(**row) for row in answer["nodes"]], [GpuHolder(**row) for row in answer["jobs"]]


def past_of(state: State, tenant: str | None) -> dict[str, Any]:
    """Nodes, and the jobs that held GPUs, of one tenant or of all."""
    cluster = state.cluster
    nodes = [
        NodeRow(
            name,
            cluster.types[int(cluster.type_of[n])],
            int(cluster.node_gpus[n]),
            int(state.node_free[n]),
            bool(state.node_up[n]),
        )
        for n, name in enumerate(cluster.nodes)
        if cluster.node_gpus[n] > 0
    ]
    jobs = [_job(state, j) for j in np.flatnonzero(state.held_gpus > 0).tolist()]
    return {
        "nodes": [asdict(node) for node in nodes],
        "jobs": [asdict(job) for job in jobs if tenant in (None, job.tenant)],
    }


def _job(state: State, j: int) -> GpuHolder:
    spec = state.specs[j]
    spot = {state.cluster.nodes[node]: count for node, count in state.spots[j]}
    return GpuHolder(spec.id, spec.model, spec.tenant, Phase(int(state.phase[j])).name.lower(), spot)


if __name__ == "__main__":
    os.nice(10)  # decisions go first
    task = json.loads(sys.argv[1])
    past = read_past(Path(task["directory"]), task["time_s"])
    print(json.dumps(None if past is None else past_of(past, task["tenant"])))
