"""One file per paper, pure; a literal registry name -> policy."""

from __future__ import annotations

from fairlead.model.allocation import Level
from fairlead.model.errors import InputError
from fairlead.policies.equal_share import equal_share
from fairlead.policies.gavel import gavel
from fairlead.policies.las import las
from fairlead.policies.orders import fifo, fifo_sticky, srtf
from fairlead.policies.policy import Knows, Policy

_ALL = (
    Policy(
        "fifo",
        "In order of arrival every round; each job takes its fastest type with room and may move.",
        "plain order",
        Level.GRANTS,
        fifo,
    ),
    Policy(
        "fifo-sticky",
        "In order of arrival; a job stays where it started until it ends.",
        "plain order",
        Level.GRANTS,
        fifo_sticky,
    ),
    Policy(
        "srtf",
        "Shortest remaining time on the fastest type first.",
        "plain order",
        Level.GRANTS,
        srtf,
        knows=frozenset({Knows.LENGTHS}),
    ),
    Policy(
        "las",
        "Least attained GPU-time first, in queues; blind to GPU types, fastest free GPUs first.",
        "Tiresias (NSDI 2019), two-dimensional LAS",
        Level.GRANTS,
        las,
    ),
    Policy(
        "equal-share",
        "Every job its isolated 1/n of every GPU type.",
        "Gavel (OSDI 2020), isolated baseline",
        Level.SHARES,
        equal_share,
    ),
    Policy(
        "gavel",
        "The job worst off against its isolated share is as well off as it can be, then the total is largest.",
        "Gavel (OSDI 2020), heterogeneity-aware max-min",
        Level.SHARES,
        gavel,
    ),
)

REGISTRY: dict[str, Policy] = {policy.name: policy for policy in _ALL}


def find_policy(name: str) -> Policy:
    if name not in REGISTRY:
        raise InputError(f'there is no policy "{name}" (have: {", ".join(REGISTRY)})')
    return REGISTRY[name]
