"""The answers that a policy may return: shares, grants or a placement. Each level is converted to the next one."""

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
    """What accompanies every allocation: how long it holds if nothing happens, and how it was computed."""

    holds_until_s: float = math.inf
    solver: str = ""  # outcome of the solve, or the name of the fallback that was used
    terms: Terms | None = field(default=None, compare=False)  # the policy's own numbers about jobs
    considered: BoolArray | None = field(default=None, compare=False)  # j  jobs that the policy looked at; None = all


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
    """Whole GPUs for one round: one entry for every job and type with GPUs. Where not all entries can be
    placed, earlier ones take precedence. A job that mixes types has several consecutive entries.
    """

    jobs: IntArray  # entries  positions in the view
    types: IntArray  # entries
    gpus: IntArray  # entries
    answer: Answer = _PLAIN


NO_GRANTS = Grants(NO_JOBS, NO_JOBS, NO_JOBS)


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes and GPUs of every job in the view."""

    spots: tuple[Spot, ...]  # j
    answer: Answer = _PLAIN


Allocation = Shares | Grants | Placement
