"""Gavel's policy framework in its shortest-job-first form (OSDI 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Answer, Level, Shares
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View
from fairlead.numerics.isolated import isolated_shares
from fairlead.numerics.one_choice import ChoiceProgram, choose
from fairlead.numerics.solve import Limit
from fairlead.policies.policy import Knows, RoundPolicy

ITERATIONS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class SJFMemory:
    """The last problem and its shares, which are reused while the order, the rates and the capacity stay the same."""

    order: IntArray  # keys of jobs, the shortest first
    rate: FloatArray  # j,t
    capacity: IntArray  # t
    shares: Shares


def gavel_sjf(view: View, memory: SJFMemory | None) -> tuple[Shares, SJFMemory]:
    """Shares of time in which a job's speed counts for more the shorter its remaining time on its fastest type is.

        max  sum_j (n - k_j) theta_j.x_j / max_t theta_jt      s.t.  sum_t x_jt <= 1,   sum_j d_j x_jt <= m_t,   x >= 0

    k_j is the job's place in the order, 0 for the shortest. This is Gavel's first-in-first-out objective with the order
    of shortest jobs: Gavel's own description of this policy ("minimise the time of the shortest job") determines only one
    job's share. A job of unknown length goes last.
    Departs: the weights; and x is kept while the order stays the same, while Gavel solves again after a reset interval.
    """
    assert view.total is not None, "gavel-sjf declares that it knows lengths"
    assert view.done is not None
    fastest = np.maximum(view.ideal_rate.max(axis=1, initial=0.0), 1e-300)  # j
    remaining_s = np.nan_to_num(np.maximum(view.total - view.done, 0.0) / fastest, nan=np.inf)
    first = np.lexsort((view.job, remaining_s))
    order = view.job[first]
    if (
        memory is not None
        and np.array_equal(order, memory.order)
        and np.array_equal(view.rate, memory.rate)
        and np.array_equal(view.capacity, memory.capacity)
        and np.array_equal(view.job, memory.shares.owner_key)
    ):
        return memory.shares, SJFMemory(order, view.rate, view.capacity, memory.shares)
    value = np.empty(view.jobs)  # j  n - k
    value[first] = np.arange(view.jobs, 0, -1)
    gpus = _solve(view, value[:, None] * view.rate / fastest[:, None])
    shares = Shares(
        gpus=isolated_shares(view.rate > 0, view.width, view.capacity, view.weight) if gpus is None else gpus,
        owner_of=np.arange(view.jobs),
        owner_key=view.job,
        # The order changes while jobs run.
        answer=Answer(holds_until_s=view.now_s, solver="equal shares" if gpus is None else "optimal"),
    )
    return shares, SJFMemory(order, view.rate, view.capacity, shares)


def _solve(view: View, gain: FloatArray) -> FloatArray | None:
    """j,t  GPUs; None if the solver gave up."""
    jobs, types = np.nonzero((view.rate > 0) & (view.capacity >= view.width[:, None]))
    width = view.width[jobs].astype(np.float64)
    program = ChoiceProgram(
        job=jobs,
        cost=-gain[jobs, types],
        start=np.arange(len(jobs) + 1),
        row=types,
        amount=width,
        low=np.full(len(view.capacity), -np.inf),
        high=view.capacity.astype(np.float64),
    )
    chosen = choose(program, Limit(iterations=ITERATIONS))
    if chosen is None:
        return None
    gpus = np.zeros(gain.shape)
    gpus[jobs, types] = chosen.x * width
    return gpus


POLICY = RoundPolicy(
    name="gavel-sjf",
    summary="Shares that favour the speed of the jobs with the shortest remaining time.",
    paper="Gavel (OSDI 2020), shortest job first",
    level=Level.SHARES,
    allocate=gavel_sjf,
    remembers=(SJFMemory,),
    knows=frozenset({Knows.LENGTHS}),
)
