"""Whether a decision that another process has made may be journalled and carried out.

The check looks at the folded state alone and shares no code with `decide`: what a decider returns is treated as a claim.
"""

from __future__ import annotations

import math

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import IntArray
from fairlead.model.decision import Cause, Decision, Why
from fairlead.model.errors import BrokenInvariantError, FairleadError
from fairlead.model.lifecycle import Step, advance
from fairlead.model.outcomes import Reason
from fairlead.model.words import counted
from fairlead.rounds.state import State


class RejectedDecisionError(FairleadError):
    """A decision that must not be carried out, with what is wrong with it."""


def vet(state: State, decision: Decision, cause: Cause) -> None:
    """Raise RejectedDecisionError unless the decision is of this instant, gangs are whole, and their GPUs are free."""
    _check_form(state, decision, cause)
    _check_phases(state, decision)
    room, up = state.node_free.tolist(), state.node_up.tolist()  # n
    for j in decision.stop.tolist():
        for node, gpus in state.spots[j]:
            room[node] += gpus
    for j, spot in zip(decision.start.tolist(), decision.spots, strict=True):
        _check_gang(state, j, spot, up)
        for node, gpus in spot:
            room[node] -= gpus
    if min(room, default=0) < 0:
        node = int(np.argmin(room))
        _reject(f"it assigns {counted(-room[node], 'GPU')} of node {state.cluster.nodes[node]} more than are free")
    if decision.why is not None:
        _check_why(state, decision.why)


def _check_form(state: State, decision: Decision, cause: Cause) -> None:
    if decision.time_s != state.now_s or decision.cause is not cause:
        _reject(f"it is of {decision.time_s} s ({decision.cause}); wanted {state.now_s} s ({cause})")
    if not decision.holds_until_s > -math.inf:  # also catches NaN
        _reject(f"it holds until {decision.holds_until_s} s")
    trials = np.array(decision.trials, dtype=np.int64)
    for verb, jobs in (("stops", decision.stop), ("starts", decision.start), ("tries", trials)):
        _check_positions(state, verb, jobs)
    if len(decision.spots) != decision.start.size:
        _reject(f"it starts {counted(decision.start.size, 'job')} on {counted(len(decision.spots), 'spot')}")
    if cause is Cause.EVENT and decision.stop.size:
        _reject("it stops jobs within a round")


def _check_positions(state: State, verb: str, jobs: IntArray) -> None:
    if jobs.size and not (jobs[0] >= 0 and jobs[-1] < state.jobs and (np.diff(jobs) > 0).all()):
        _reject(f"it {verb} jobs that are unknown, repeated or out of order")


def _check_phases(state: State, decision: Decision) -> None:
    stop, start = set(decision.stop.tolist()), set(decision.start.tolist())
    try:
        for jobs, step in ((stop - start, Step.STOP), (stop & start, Step.MOVE), (start - stop, Step.START)):
            advance(state.phase[sorted(jobs)], step)
    except BrokenInvariantError as error:
        _reject(str(error))


def _check_gang(state: State, j: int, spot: Spot, up: list[bool]) -> None:
    spec, cluster = state.specs[j], state.cluster
    nodes, gpus = [node for node, _ in spot], [count for _, count in spot]
    if not spot or min(nodes) < 0 or max(nodes) >= len(up) or len(set(nodes)) < len(nodes):
        _reject(f"the spot of job {spec.id} is empty, or has unknown or repeated nodes")
    if min(gpus) < 1 or sum(gpus) not in spec.widths:
        _reject(f"job {spec.id} gets {gpus} GPUs; it runs on {list(spec.widths)}")
    if spec.nodes is not None and gpus != [sum(gpus) // spec.nodes] * spec.nodes:
        _reject(f"job {spec.id} gets {gpus} GPUs on its nodes; it runs on {spec.nodes} nodes with equally many each")
    for node in nodes:
        if not up[node]:
            _reject(f"job {spec.id} is placed on node {cluster.nodes[node]}, which is down")
    types = {state.nodes.types[node] for node in nodes}
    if len(types) > 1 and not spec.relaxed:
        _reject(f"job {spec.id} gets several GPU types, which it does not allow")
    if spec.types and not all({cluster.types[t], cluster.gpu[t]} & set(spec.types) for t in types):
        _reject(f"job {spec.id} gets {' and '.join(cluster.types[t] for t in sorted(types))}; it runs on {spec.types}")


def _check_why(state: State, why: Why) -> None:
    rows = why.outcomes
    _check_positions(state, "explains", rows.job)
    columns = (rows.reason, rows.wanted, rows.free, rows.a, rows.b)
    if any(column.shape != rows.job.shape for column in columns):
        _reject("the columns of its reasons have different lengths")
    if rows.job.size and not (rows.reason.min() >= 0 and rows.reason.max() < len(Reason)):
        _reject("it has a reason that does not exist")
    if rows.terms is not None and rows.terms.shape != (rows.job.size, len(rows.labels)):
        _reject("the policy's own numbers have no label, or belong to no job")
    if not all(
        np.isfinite(column).all() for column in (rows.a, rows.b, *(() if rows.terms is None else (rows.terms,)))
    ):
        _reject("a number of its reasons is not finite")
    named = {k for j, others in why.successors.items() for k in (j, *others)}
    if not all(0 <= j < state.jobs for j in named) or not math.isfinite(why.gain):
        _reject("its successors are unknown jobs, or its gain is not finite")


def _reject(problem: str) -> None:
    raise RejectedDecisionError(problem)
