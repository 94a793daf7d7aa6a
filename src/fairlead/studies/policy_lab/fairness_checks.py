"""Checks that the divisions of a policy keep its promises, for random tenants with more jobs than GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Shares
from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import NodeGroup, build_cluster
from fairlead.model.events import Arrived
from fairlead.model.jobs import JobSpec
from fairlead.numerics.fairness import audit, gain_by_lying, normalise
from fairlead.numerics.random import stream
from fairlead.policies.policy import AnyPolicy, Policy, Promise, TaskPolicy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import Profile, Speed
from fairlead.rounds.look import look
from fairlead.rounds.state import State

GPUS = ("k80", "p100", "v100")
SLACK = 1e-5
LIES = 5  # random lies, in addition to those that are always tried


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    complaint: str
    world: str


def check_promises(policy: AnyPolicy, example: int) -> BrokenPromise | None:
    """The first promise that a random division breaks, or None."""
    if isinstance(policy, TaskPolicy) or not policy.promises:
        return None
    random = stream(example, "promise check")
    tenants, types = int(random.integers(2, 5)), int(random.integers(2, 4))
    speedup = normalise(np.cumsum(random.exponential(1.0, (tenants, types)) + 0.1, axis=1))
    capacity = random.integers(1, 9, types).astype(np.float64)
    weight = random.choice((1.0, 1.0, 2.0), tenants)
    shares = divide(policy, speedup, capacity, weight)
    complaint = _broken(policy, speedup, capacity, weight, shares, random)
    if complaint is None:
        return None
    rows = [
        f"  tenant {u}: weight {weight[u]:g}, speedups {speedup[u].round(3).tolist()}, gets {shares[u].round(3).tolist()}"
        for u in range(tenants)
    ]
    return BrokenPromise(complaint, "\n".join([f"GPUs: {dict(zip(GPUS, capacity.tolist(), strict=False))}", *rows]))


def divide(policy: Policy, speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> FloatArray:
    """u,t  what each tenant gets at the first decision if all arrive at once with single-GPU jobs for every GPU."""
    types = GPUS[: len(capacity)]
    cluster = build_cluster([NodeGroup(1, gpu, int(m), 16.0) for gpu, m in zip(types, capacity, strict=True)])
    rows = tuple(
        Speed(f"model-{u}", gpu, 1, 1, 1.0, float(speedup[u, t]), "made up")
        for u in range(len(speedup))
        for t, gpu in enumerate(types)
        if speedup[u, t] > 0
    )
    names = {f"tenant-{u}": float(w) for u, w in enumerate(weight)}
    state = State(cluster, TableEstimator(Profile("made up", rows, {}), cluster), names)
    for u in range(len(speedup)):
        for i in range(int(capacity.sum())):
            state.fold(Arrived(0.0, JobSpec(f"{u}-{i}", f"tenant-{u}", f"model-{u}", 0.0, 1, 1e6)))
    allocation, _ = policy.allocate(look(state, policy, 360.0), None)
    assert isinstance(allocation, Shares), f"level shares, but it returned {type(allocation).__name__}"
    tenant_of_owner = np.full(len(allocation.gpus), -1)
    tenant_of_owner[allocation.owner_of] = state.tenant[: state.jobs]
    shares = np.zeros(speedup.shape)
    np.add.at(shares, tenant_of_owner, allocation.gpus)
    return shares


def _broken(
    policy: Policy, W: FloatArray, m: FloatArray, w: FloatArray, shares: FloatArray, random: np.random.Generator
) -> str | None:
    result = audit(W, shares, m, w)
    promises = policy.promises
    if Promise.NO_ENVY in promises and (result.max_envy is None or result.max_envy > SLACK):
        envious, envied = result.envious or (0, 0)
        gain = result.max_envy or np.inf
        return (
            f'it promises "{Promise.NO_ENVY}", but tenant {envious} would gain {gain:.2%} with what tenant {envied} has'
        )
    incentive = result.min_sharing_incentive
    if Promise.SHARING_INCENTIVE in promises and incentive is not None and incentive < 1 - SLACK:
        return f'it promises "{Promise.SHARING_INCENTIVE}", but tenant {result.worst_off} has {incentive:.4f} of what a private slice gives'
    if Promise.NO_WASTE in promises and (result.pareto_gap is None or result.pareto_gap > SLACK):
        return f'it promises "{Promise.NO_WASTE}", but the total could be {result.pareto_gap or np.inf:.2%} higher with nobody worse off'
    if Promise.NO_EXAGGERATION in promises:
        for u in range(len(W)):
            lie = gain_by_lying(lambda a, b, c: divide(policy, a, b, c), W, m, w, u, "exaggerate", random, tries=LIES)
            if lie.gain is None or lie.gain > SLACK:
                return f'it promises "{Promise.NO_EXAGGERATION}", but tenant {u} gains {lie.gain or np.inf:.2%} by claiming {lie.report.round(3).tolist()}'
    return None
