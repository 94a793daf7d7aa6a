"""What tenants held, were entitled to and waited for over time, folded from the log in a process of its own.

`python -m fairlead.service.web.tenant_history TASK` prints it as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.rounds.records import Record
from fairlead.rounds.state import State
from fairlead.service.api.apart import output_apart
from fairlead.service.api.error_responses import ApiError
from fairlead.service.store.directory import StateDirectory, reading_since

PATIENCE_S = 60.0
SLICES = 60
MOST_TENANTS = 8  # those with the most GPUs, held or entitled
MEASURES = ("held", "entitled", "waiting")


async def history_apart(directory: StateDirectory, from_s: float, until_s: float) -> dict[str, Any]:
    """By tenant and measure, the mean of each slice of the time, by a child process."""
    task = json.dumps({"directory": str(directory.path), "from_s": from_s, "until_s": until_s})
    try:
        output = await asyncio.wait_for(output_apart("fairlead.service.web.tenant_history", task), PATIENCE_S)
    except TimeoutError:
        raise ApiError(429, "too_busy", "folding the log took too long", "choose a shorter time") from None
    history: dict[str, Any] = json.loads(output)
    return history


def history_of(state: State, records: Iterable[Record], from_s: float, until_s: float) -> dict[str, Any]:
    """Mean GPUs held, GPUs of the private slice and waiting jobs, by tenant and slice."""
    edges_s = np.linspace(from_s, max(until_s, from_s + 1.0), SLICES + 1)
    sums = _SliceSums(edges_s)
    for record in records:
        if record.time_s > until_s:
            break
        sums.add(state, record.time_s)
        state.fold(record)
    sums.add(state, until_s)
    slice_s = float(edges_s[1] - edges_s[0])
    return {"from_s": from_s, "slice_s": slice_s, "tenants": sums.means(list(state.tenants), slice_s)}


class _SliceSums:
    """Integrals over time by measure, tenant and slice (m,u,k)."""

    def __init__(self, edges_s: FloatArray) -> None:
        self._edges_s = edges_s
        self._sums = np.zeros((len(MEASURES), 0, len(edges_s) - 1))

    def add(self, state: State, until_s: float) -> None:
        """Add the time from the state's last record to the next one."""
        edges_s, from_s = self._edges_s, max(state.now_s, float(self._edges_s[0]))
        if until_s <= from_s:
            return
        inside_s = np.maximum(np.minimum(until_s, edges_s[1:]) - np.maximum(from_s, edges_s[:-1]), 0.0)  # k
        more = len(state.tenants) - self._sums.shape[1]
        if more:
            self._sums = np.pad(self._sums, ((0, 0), (0, more), (0, 0)))
        self._sums += _now(state)[:, :, None] * inside_s

    def means(self, names: Sequence[str], slice_s: float) -> dict[str, dict[str, list[float]]]:
        gpus = self._sums[:2].sum(axis=(0, 2))  # u
        most = sorted(range(self._sums.shape[1]), key=lambda u: (-gpus[u], names[u]))[:MOST_TENANTS]
        means = np.round(self._sums / slice_s, 3)
        return {
            names[u]: {measure: means[m, u].tolist() for m, measure in enumerate(MEASURES)}
            for u in sorted(most)
            if self._sums[:, u].any()
        }


def _now(state: State) -> FloatArray:
    """m,u  In the order of `MEASURES`."""
    users, (active, _) = len(state.tenants), state.schedulable()
    tenant, held = state.tenant[active], state.held_gpus[active]
    here = np.unique(tenant)
    entitled = np.zeros(users)
    weight = np.array(state.tenant_weight)[here]
    entitled[here] = weight / weight.sum() * state.capacity.sum() if here.size else 0.0
    return np.array(
        [
            np.bincount(tenant, held, users),
            entitled,
            np.bincount(tenant[held == 0], minlength=users),
        ]
    )


if __name__ == "__main__":
    os.nice(10)  # decisions go first
    task = json.loads(sys.argv[1])
    with reading_since(Path(task["directory"]), task["from_s"]) as (state, records):
        print(json.dumps(history_of(state, records, task["from_s"], task["until_s"])))
