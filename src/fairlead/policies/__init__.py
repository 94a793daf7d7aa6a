"""Scheduling policies, one pure file per paper; the registry collects the `POLICY` (or `POLICIES`) of each.

A new policy is a new file here and its name in `_ALL`, which has the order in which users see policies.
"""

from __future__ import annotations

from fairlead.model.errors import InputError
from fairlead.model.words import choose
from fairlead.policies import (
    allox,
    equal_share,
    fairlead,
    fft,
    gandiva_fair,
    gavel,
    gavel_ftf,
    gavel_makespan,
    gavel_sjf,
    gavel_water,
    hare,
    hlas,
    hlas_rounds,
    hops,
    las,
    oef,
    orders,
    sia,
    themis,
    tiresias,
)
from fairlead.policies.policy import AnyPolicy, Policy, TaskPolicy

_ALL: tuple[AnyPolicy, ...] = (
    *orders.POLICIES,
    las.POLICY,
    equal_share.POLICY,
    gavel.POLICY,
    *oef.POLICIES,
    gandiva_fair.POLICY,
    *fft.POLICIES,
    allox.POLICY,
    *tiresias.POLICIES,
    themis.POLICY,
    gavel_sjf.POLICY,
    *gavel_water.POLICIES,
    gavel_ftf.POLICY,
    gavel_makespan.POLICY,
    *hops.POLICIES,
    *hare.POLICIES,
    hlas.POLICY,
    hlas_rounds.POLICY,
    sia.POLICY,
    *fairlead.POLICIES,
)

REGISTRY: dict[str, AnyPolicy] = {policy.name: policy for policy in _ALL}
ROUND_POLICIES: dict[str, Policy] = {policy.name: policy for policy in _ALL if not isinstance(policy, TaskPolicy)}
TASK_POLICIES: dict[str, TaskPolicy] = {policy.name: policy for policy in _ALL if isinstance(policy, TaskPolicy)}


def register(policy: AnyPolicy) -> None:
    """Make a user's own policy known to this process, by its name."""
    if REGISTRY.setdefault(policy.name, policy) is not policy:
        raise InputError(f'there is another policy "{policy.name}"; change the name of yours')
    if isinstance(policy, TaskPolicy):
        TASK_POLICIES[policy.name] = policy
    else:
        ROUND_POLICIES[policy.name] = policy


def find_policy(name: str) -> AnyPolicy:
    """The registered policy of that name, of either kind."""
    return REGISTRY[choose("policy", name, REGISTRY)]


def find_round_policy(name: str) -> Policy:
    """The registered policy of that name, which must decide rounds, as services, replays and decisions need it."""
    return as_round_policy(find_policy(name))


def as_round_policy(policy: AnyPolicy) -> Policy:
    """The policy itself, unless it plans single tasks."""
    if isinstance(policy, TaskPolicy):
        raise InputError(
            f"{policy.name} decides single tasks, which only the simulator runs; use one of {', '.join(ROUND_POLICIES)}"
        )
    return policy
