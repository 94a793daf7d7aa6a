"""Why a decision came out as it did: one reason, with its numbers, for every job that waits.

A job that runs needs no reason: the state has its nodes and its start. Reasons are stored when they change, not in
every round.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from fairlead.model.arrays import NO_JOBS, FloatArray, IntArray
from fairlead.model.units import format_duration, format_gpu_time
from fairlead.model.words import counted


class Reason(IntEnum):
    """The closed set of reasons. `code` is the stable word that journals, the API and the command line show.

    What the numbers `a` and `b` of an outcome mean depends on the reason; the comment next to it states it.
    """

    UNDECIDED = 0  # it runs, or no decision has been made since it arrived
    CAPACITY = 1  # within a round only free GPUs are assigned, and too few of any type are free
    FRAGMENTED = (
        2  # enough GPUs are free, but not on nodes where it would run. a: most free on one node, b: nodes with any
    )
    SHARE = 3  # its owner's share leaves no turn for it now. a: GPUs of the owner's share, b: GPUs that the owner holds
    ORDER = 4  # the policy serves others first. a: jobs that hold GPUs, b: GPUs in use of the types on which it runs
    QUOTA = 5  # its tenant may not hold more. a: GPUs that the tenant holds, b: GPUs that it may hold, of the same type
    HELD = 6  # its owner put it on hold
    WINDOW = 7  # the policy did not consider it this time. a: jobs that it considered
    MIN_RUN = 8  # jobs in their minimum run time hold what it needs. a: GPUs that they hold, b: when the first may move
    NODE_DOWN = 9  # too few GPUs of its types are up and usable. a: GPUs of its types in all, b: most up of one type
    NEVER_FITS = 10  # no type of the cluster can run it
    MEASURING = 11  # its model is new to its tenant. a: GPU types on which it was measured, b: types that are left
    BACK_OFF = 12  # it pauses before it is started again. a: starts in a row that came to nothing, b: when it may start
    # Running jobs may not be pre-empted for it now. a: GPU-seconds that this cost in the last hour, b: at most
    PREEMPTION_LIMIT = 13

    @property
    def code(self) -> str:
        return _CODES[self]


_CODES = {reason: "".join(part.capitalize() for part in reason.name.split("_")) for reason in Reason}
REASON_OF_CODE = {code: reason for reason, code in _CODES.items()}


def sentence(reason: Reason, wanted: int, free: int, a: float, b: float, since_s: float) -> str | None:
    """The reason in words, with its numbers as `Outcomes` has them; None where there is none.

    The numbers are those of the decision at `since_s`, which may be old: sentences with numbers are in the past tense.
    """
    gpus = counted(wanted, "GPU")
    match reason:
        case Reason.CAPACITY:
            return f"it asks for {gpus} of one type, and {free} were free"
        case Reason.FRAGMENTED:
            return f"{counted(free, 'GPU')} of a type were free, and no node had more than {a:g} of the {gpus} wanted"
        case Reason.SHARE:
            return f"the share that it draws on is {a:.3g} GPUs, of which {b:g} were held; its turn will come"
        case Reason.ORDER if free >= wanted:
            return f"the policy gave it none of the {free} GPUs that were free"
        case Reason.ORDER:
            return f"the policy served other jobs first, which held {b:g} of the GPUs it could use"
        case Reason.QUOTA:
            return f"its tenant held {a:g} of the {b:g} GPUs of the type that it may hold"
        case Reason.HELD:
            return "its owner put it on hold"
        case Reason.WINDOW:
            return f"the policy considered {counted(round(a), 'job')} before it"
        case Reason.MIN_RUN:
            wait = format_duration(max(b - since_s, 0.0))
            return f"jobs that had just started held {a:g} of the GPUs it could use; the first could move after {wait}"
        case Reason.NODE_DOWN:
            return f"it asks for {gpus} of one type, and {b:g} were on nodes that were up"
        case Reason.NEVER_FITS:
            return f"no GPU type of this cluster can run it on {gpus}"
        case Reason.MEASURING:
            return f"its model is new and is measured first; {round(b)} of {counted(round(a + b), 'GPU type')} left"
        case Reason.BACK_OFF:
            wait = format_duration(max(b - since_s, 0.0))
            return f"{counted(round(a), 'start')} in a row came to nothing; the next one is {wait} after the last"
        case Reason.PREEMPTION_LIMIT:
            cost = f"{format_gpu_time(a)} of at most {format_gpu_time(b)}"
            return f"running jobs would have had to stop for it, and in an hour that had cost {cost}"
        case Reason.UNDECIDED:
            return None


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """A policy's own numbers: one value per label for every job in its view.

    Hops reports the latency ratio here, OEF the share and its value, FFT the cost and the compensation.
    """

    labels: tuple[str, ...]
    values: FloatArray  # j,label


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """The waiting jobs whose reason changed in a decision, by position in the state, ascending."""

    job: IntArray
    reason: IntArray  # of `Reason`
    wanted: IntArray  # GPUs that the job asks for
    free: IntArray  # GPUs of the type with the most, among those on which it runs, that are free after the decision
    a: FloatArray
    b: FloatArray
    labels: tuple[str, ...] = ()
    terms: FloatArray | None = None  # row,label  the policy's own numbers


NO_OUTCOMES = Outcomes(NO_JOBS, NO_JOBS, NO_JOBS, NO_JOBS, np.empty(0), np.empty(0))
