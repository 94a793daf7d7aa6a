"""Hops live: a slow server is found from the reports of real processes, and jobs are moved off it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from live_run import Done, Plan, all_ended, let_end, run_live, training

from building import profile
from fairlead.engines.requests import Cancel, Request
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Decision
from fairlead.model.lifecycle import Phase
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.state import State
from fairlead.studies.journals.replaying import replay_journal

SLOW, PACE = "v100-2", 0.3


class Crowded:
    """Jobs fill three nodes, one of which is slow. Once all three have reported speeds, one on a fast node is cancelled.

    The run may end when the job of the slow node has moved to the node that became free, and has trained there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next: list[Request] = [training(folder, id_, "t", 20_000.0) for id_ in ("a", "b", "c")]
        self._cancelled = False

    def __call__(self, state: State) -> Sequence[Request] | None:
        if all_ended(state):
            return None
        requests, self._next = self._next, []
        slow = state.cluster.nodes.index(SLOW)
        if state.jobs == 3 and not self._cancelled and known(state):
            self._cancelled = True
            return [Cancel(next(spec.id for j, spec in enumerate(state.specs) if node_of(state, j) != slow))]
        left = [j for j in range(state.jobs) if state.phase[j] == Phase.RUNNING]
        if self._cancelled and len(left) == 2 and all(node_of(state, j) != slow for j in left):
            let_end(self._folder)
        return requests


def node_of(state: State, j: int) -> int | None:
    return state.spots[j][0][0] if state.spots[j] else None


def known(state: State) -> bool:
    """Whether the slow node is known to be slow by the reports of its job, and the others not to be."""
    assert state.learner is not None
    for j, spec in enumerate(state.specs):
        node = node_of(state, j)
        if node is None or state.phase[j] != Phase.RUNNING or not state.done[j]:
            return False
        expected = state.learner.predict(j, spec.model, state.spots[j]) / state.estimator.at(spec.model, 0, 1, 1)
        if (expected < 0.6) != (state.cluster.nodes[node] == SLOW):
            return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["hops", "hops-late"])
def test_hops_finds_a_slow_server_from_reports_and_moves_its_job(policy: str, tmp_path: Path) -> None:
    plan = Plan(
        tmp_path,
        policy,
        parse_short_form("v100:3x1"),
        profile({"m": {"v100": 40.0}}),
        {"v100": 1.0},
        node_pace={SLOW: PACE},
        sensing=Sensing.THREE_LAYER,
    )

    done = run_live(plan, Crowded(tmp_path))

    assert sorted(done.state.phase[:3].tolist()) == sorted([Phase.CANCELLED, Phase.FINISHED, Phase.FINISHED])
    slow = done.state.cluster.nodes.index(SLOW)
    moved = [nodes for nodes in visited(done).values() if slow in nodes]
    assert moved
    assert all(nodes[-1] != slow for nodes in moved)
    replayed = replay_journal(done.journal)
    assert replayed.same == replayed.decisions


def visited(done: Done) -> dict[int, list[int]]:
    """The nodes of each job, in the order in which it was placed on them."""
    nodes: dict[int, list[int]] = {}
    for record in done.records():
        if isinstance(record, Decision):
            for j, spot in zip(record.start.tolist(), record.spots, strict=True):
                nodes.setdefault(j, []).append(spot[0][0])
    return nodes
