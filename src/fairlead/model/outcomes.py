"""Why a decision came out as it did: for every job that waits one reason with its numbers, for every stop what it was for.

A job that runs needs no reason: the state has where and since when. Reasons are stored when they change, not in every
round again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from fairlead.model.arrays import NO_JOBS, FloatArray, IntArray


class Reason(IntEnum):
    """The closed set. `code` is the stable word that journals, the API and the command line show.

    `a` and `b` of an outcome mean what stands beside each.
    """

    RUNS = 0  # it does not wait
    CAPACITY = 1  # inside a round only free GPUs are handed out, and too few of a type are free. a, b: unused
    FRAGMENTED = (
        2  # enough GPUs are free, but not on nodes where it would run. a: most free on one node, b: nodes with some
    )
    SHARE = 3  # its owner's share is not its turn. a: GPUs of the owner's share, b: GPUs that the owner holds
    ORDER = 4  # the policy serves others first. a: jobs that hold what it could use, b: their GPUs
    QUOTA = (
        5  # its tenant may not hold more. a: GPUs of the nearest type that the tenant holds, b: the most it may hold
    )
    HELD = 6  # its owner put it on hold. a, b: unused
    WINDOW = (
        7  # the policy has not looked at it in this round. a: jobs that it has looked at, b: GPUs that they ask for
    )
    MIN_RUN = 8  # jobs that started a moment ago keep what it needs. a: their GPUs, b: time at which the first may move
    NODE_DOWN = (
        9  # the nodes that could hold it are down, or not ours to use. a: their GPUs, b: most of one type that are up
    )
    RESTARTING = 10  # it is stopping, and is decided on again once its GPUs are free. a, b: unused
    NEVER_FITS = 11  # no type of this cluster can run it. a: GPUs of the largest type, b: unused

    @property
    def code(self) -> str:
        return _CODES[self]


_CODES = {reason: "".join(part.capitalize() for part in reason.name.split("_")) for reason in Reason}
REASON_OF_CODE = {code: reason for reason, code in _CODES.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What a policy adds in its own words: one value under each label for every job of its view.

    Hops has the latency ratio here, OEF the share and its price, FFT the cost and the compensation.
    """

    labels: tuple[str, ...]
    values: FloatArray  # j,label


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Jobs whose reason changed in this decision, by position for life, ascending."""

    job: IntArray
    reason: IntArray  # of `Reason`
    wanted: IntArray  # GPUs that the job asks for
    free: IntArray  # the most GPUs of one type on which it runs that are free after the decision
    a: FloatArray
    b: FloatArray
    labels: tuple[str, ...] = ()
    terms: FloatArray | None = None  # job,label  what the policy adds


NO_OUTCOMES = Outcomes(NO_JOBS, NO_JOBS, NO_JOBS, NO_JOBS, np.empty(0), np.empty(0))


@dataclass(frozen=True, slots=True)
class Stop:
    """What a job gave its GPUs up for. Speeds are parts of a job's own fastest, times its GPUs."""

    job: int  # position for life
    to: tuple[int, ...]  # jobs that start on its nodes in the same decision, the job itself if it moves
    gain: float  # speed of those and of the job after the decision, less their speed before it


NO_STOPS: Sequence[Stop] = ()
