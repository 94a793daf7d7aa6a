"""Why a decision came out as it did: for every job that waits one reason with its numbers.

A job that runs needs no reason: the state has where and since when. Reasons are stored when they change, not in every
round again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from fairlead.model.arrays import NO_JOBS, FloatArray, IntArray


class Reason(IntEnum):
    """The closed set. `code` is the stable word that journals, the API and the command line show.

    What the numbers `a` and `b` of an outcome mean depends on the reason and is said beside it.
    """

    UNDECIDED = 0  # it runs, or no decision has been taken since it came
    CAPACITY = 1  # inside a round only free GPUs are handed out, and too few of any type are free
    FRAGMENTED = (
        2  # enough GPUs are free, but not on nodes where it would run. a: most free on one node, b: nodes with any
    )
    SHARE = 3  # its owner's share leaves no turn for it now. a: GPUs of the owner's share, b: GPUs that the owner holds
    ORDER = 4  # the policy serves others first. a: jobs that hold GPUs, b: GPUs in use of the types on which it runs
    QUOTA = 5  # its tenant may not hold more. a: GPUs that the tenant holds, b: GPUs that it may hold, of the same type
    HELD = 6  # its owner put it on hold
    WINDOW = 7  # the policy did not consider it this time. a: jobs that it considered
    MIN_RUN = 8  # jobs that must keep their GPUs a while hold what it needs. a: GPUs that they hold, b: when the first may move
    NODE_DOWN = (
        9  # too few of its GPUs are on nodes that are up and ours. a: GPUs of its types in all, b: most up of one type
    )
    NEVER_FITS = 10  # no type of the cluster can run it

    @property
    def code(self) -> str:
        return _CODES[self]


_CODES = {reason: "".join(part.capitalize() for part in reason.name.split("_")) for reason in Reason}
REASON_OF_CODE = {code: reason for reason, code in _CODES.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What a policy adds in its own terms: a value under each label for every job of its view.

    Hops gives the latency ratio here, OEF the share and what it is worth, FFT the cost and the compensation.
    """

    labels: tuple[str, ...]
    values: FloatArray  # j,label


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """The waiting jobs whose reason changed in a decision, by position for life, ascending."""

    job: IntArray
    reason: IntArray  # of `Reason`
    wanted: IntArray  # GPUs that the job asks for
    free: IntArray  # GPUs of the type with the most, among those on which it runs, that are free after the decision
    a: FloatArray
    b: FloatArray
    labels: tuple[str, ...] = ()
    terms: FloatArray | None = None  # row,label  what the policy adds


NO_OUTCOMES = Outcomes(NO_JOBS, NO_JOBS, NO_JOBS, NO_JOBS, np.empty(0), np.empty(0))
