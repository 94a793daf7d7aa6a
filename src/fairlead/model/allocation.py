"""What a policy may answer: shares, grants or a placement. Each level is turned into the next one below it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from fairlead.model.arrays import NO_JOBS, BoolArray, FloatArray, IntArray
from fairlead.model.outcomes import Terms

# Where one job runs: (node, GPUs) pairs in ascending node order; empty = nowhere.
Spot = tuple[tuple[int, int], ...]
NOWHERE: Spot = ()


class Level(StrEnum):
    SHARES = "shares"
    GRANTS = "grants"
    PLACEMENT = "placement"
    TASKS = "tasks"


@dataclass(frozen=True, slots=True)
class Answer:
    """Said beside every allocation: until when it holds if nothing happens, and how it was found."""

    holds_until_s: float = math.inf
    solver: str = ""  # outcome of the solve, or the name of the fallback that was used
    terms: Terms | None = field(default=None, compare=False)  # what the policy says of jobs in its own terms
    considered: BoolArray | None = field(default=None, compare=False)  # j  jobs that it looked at; None = all


_PLAIN = Answer()


@dataclass(frozen=True, slots=True)
class Shares:
    """Fractional GPUs by owner and type. `owner_of` maps jobs to owners; `owner_key` names an owner across rounds."""

    gpus: FloatArray  # o,t
    owner_of: IntArray  # j
    owner_key: IntArray  # o  ascending
    answer: Answer = _PLAIN


@dataclass(frozen=True, slots=True)
class Grants:
    """Whole GPUs for one round: an entry for every job and type that gets any. Who stands first goes first where
    something has to give. A job that mixes types has several entries, one after another.
    """

    jobs: IntArray  # entries  positions in the view
    types: IntArray  # entries
    gpus: IntArray  # entries
    answer: Answer = _PLAIN


NO_GRANTS = Grants(NO_JOBS, NO_JOBS, NO_JOBS)


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes for every job of the view."""

    spots: tuple[Spot, ...]  # j
    answer: Answer = _PLAIN


Allocation = Shares | Grants | Placement
