"""Themis: GPUs on leases, auctioned to the jobs that are furthest behind their fair finish (Mahajan et al., NSDI 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Answer, Grants, Level
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View
from fairlead.numerics.metrics import isolated_rate
from fairlead.numerics.one_choice import ChoiceProgram, choose
from fairlead.numerics.solve import NO_LIMIT, Limit, Optimal, TimeLimit, solve
from fairlead.placement.fill import fill_in_order
from fairlead.placement.moves import held_by, joined, left_over
from fairlead.policies.policy import Knows, RoundPolicy
from fairlead.policies.ranges import Number
from fairlead.policies.type_queues import remaining_times

WORK = Limit(nodes=2000)
GAP = 1e-4  # relative, of the auction's objective


@dataclass(frozen=True, slots=True, eq=False)
class Leases:
    """The end of the lease of each job that got GPUs."""

    job: IntArray  # ascending
    until_s: FloatArray


def themis(
    view: View, memory: Leases | None, *, fairness: float = 0.8, lease_s: float = 1200.0
) -> tuple[Grants, Leases]:
    """GPUs whose lease is over are auctioned to the fraction 1 - `fairness` of the jobs with the largest rho.

        rho_j = T_sh / T_id,    T_sh = t_j + n_j / theta_jt,    T_id = (time of the whole job on its 1/n of the cluster)

        max  sum_jt log(rho_j0 / rho_jt) X_jt    s.t.  sum_t X_jt <= 1,   sum_j d_j X_jt <= free_t,   X in {0, 1}

    t_j is the time since arrival, n_j the remaining work, rho_jt the ratio with GPUs of type t until the end: this is the
    largest product of 1 / rho. What the auction leaves goes to the other jobs, the largest rho first. A winner keeps its
    GPUs for `lease_s`.

    Departs: in the paper the rho of a job that wins nothing is unbounded, so every product with such a job is zero; here
    rho_j0 is that of waiting for a lease and then running on the slowest type until the end. The payments that make
    honest bids optimal are left out, because rates are measured and not bid; leftovers are not assigned at random.
    n is the number of jobs now, not its average over the job's life. A job bids for its gang, not for parts of it.
    """
    until_s = _recall(view, memory)
    leased = (view.held_gpus > 0) & (until_s > view.now_s)
    kept = held_by(view, np.flatnonzero(leased))
    ratio, bid = _ratios(view, lease_s)  # j  j,t
    # The largest rho first; ties go to the earlier job.
    order = np.lexsort((view.job, -ratio))
    order = order[~leased[order] & (view.rate[order] > 0).any(axis=1)]
    bidders = order[: math.ceil((1 - fairness) * len(order))]
    won = _auction(view, bidders, bid, left_over(view, kept))
    granted = joined(kept, won)
    rest = order[~np.isin(order, won.jobs)]
    granted = joined(granted, Grants(*fill_in_order(rest, view.width, view.rate, left_over(view, granted))))
    new = granted.jobs[~leased[granted.jobs]]
    until_s[new] = view.now_s + lease_s
    # If a job has to stop, or stays although its lease is over, the next round is another auction.
    settled = bool((view.held_gpus[np.setdiff1d(np.arange(view.jobs), granted.jobs)] == 0).all())
    holds_until_s = float(until_s[granted.jobs].min(initial=math.inf)) if settled else view.now_s
    answer = Answer(holds_until_s=holds_until_s, solver=won.answer.solver)
    return Grants(granted.jobs, granted.types, granted.gpus, answer), Leases(view.job, until_s)


def _ratios(view: View, lease_s: float) -> tuple[FloatArray, FloatArray]:
    """j  rho_j0, and j,t  log(rho_j0 / rho_jt), 0 where the job cannot run."""
    assert view.done is not None, "themis declares that it knows lengths"
    to_go_s = remaining_times(view)  # j,t
    runs = view.rate > 0
    since_s = view.now_s - view.arrival_s  # j
    slowest_s = np.where(runs, to_go_s, 0.0).max(axis=1, initial=0.0)  # j
    left_out_s = since_s + lease_s + slowest_s
    alone = isolated_rate(view.ideal_rate, view.width, view.cluster.capacity, np.full(view.jobs, float(view.jobs)))
    fastest = view.ideal_rate.max(axis=1, initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        least_s = np.where(runs, to_go_s, np.inf).min(axis=1, initial=np.inf)
        ideal_s = (view.done / fastest + least_s) * fastest / alone  # j  T_id
        ratio = np.nan_to_num(left_out_s / np.maximum(ideal_s, 1e-9), nan=0.0)
        bid = np.log(left_out_s[:, None] / np.maximum(since_s[:, None] + to_go_s, 1e-9))
    return ratio, np.where(runs, bid, 0.0)


def _auction(view: View, bidders: IntArray, bid: FloatArray, free: IntArray) -> Grants:
    """What each bidder wins, in the order of the bidders."""
    place, types = np.nonzero((bid[bidders] > 0) & (view.width[bidders, None] <= free))
    jobs = bidders[place]
    if not jobs.size:
        return Grants(jobs, types, view.width[jobs])
    program = ChoiceProgram(
        job=place,
        cost=-bid[jobs, types],
        start=np.arange(len(jobs) + 1),
        row=types,
        amount=view.width[jobs].astype(np.float64),
        low=np.full(len(free), -np.inf),
        high=free.astype(np.float64),
    )
    taken, solver = winners(program)
    return Grants(jobs[taken], types[taken], view.width[jobs[taken]], Answer(solver=solver))


def winners(program: ChoiceProgram) -> tuple[IntArray, str]:
    """The cells of the best auction within the gap.

    If the linear program's whole cells, and then whatever fits by its net cost, are not within the gap, the whole-number
    program decides over the cells that may be part of a better auction: those whose reduced cost is at most the difference.
    """
    chosen = choose(program, NO_LIMIT)
    if chosen is None:  # in the order of the bidders, like leftovers
        return np.empty(0, dtype=np.int64), "largest rho first"
    net = program.net(chosen.price)
    alone = np.zeros(int(program.job.max()) + 1)
    np.minimum.at(alone, program.job, net)
    beyond = net - alone[program.job]  # cells  reduced cost
    rounded = _rounded(program, np.lexsort((np.arange(len(net)), beyond, -np.round(chosen.x, 6))))
    above = float(program.cost[rounded].sum()) - chosen.objective
    if above <= GAP * abs(chosen.objective):
        return rounded, "optimal"
    open_ = np.flatnonzero(beyond <= above)
    part = program.part(open_, program.low, program.high)
    outcome = solve(replace(part.linear(), whole=np.ones(len(open_), dtype=np.bool_)), WORK, gap=GAP)
    if (
        not isinstance(outcome, Optimal | TimeLimit)
        or outcome.x is None
        or outcome.objective > program.cost[rounded].sum()
    ):
        return rounded, "best so far"
    return open_[outcome.x > 0.5], "optimal" if isinstance(outcome, Optimal) else "best so far"


def _rounded(program: ChoiceProgram, order: IntArray) -> IntArray:
    """Cells in this order, as far as they fit; ascending."""
    left, won, taken = program.high.tolist(), set(), []
    for c, j, t, gpus in zip(
        order.tolist(),
        program.job[order].tolist(),
        program.row[order].tolist(),
        program.amount[order].tolist(),
        strict=True,
    ):
        if j not in won and gpus <= left[t]:
            won.add(j)
            left[t] -= gpus
            taken.append(c)
    return np.array(sorted(taken), dtype=np.int64)


def _recall(view: View, memory: Leases | None) -> FloatArray:
    """j  end of the lease; long past for jobs without one."""
    until_s = np.full(view.jobs, -math.inf)
    if memory is not None and memory.job.size and view.jobs:
        at = np.minimum(np.searchsorted(memory.job, view.job), len(memory.job) - 1)
        known = memory.job[at] == view.job
        until_s[known] = memory.until_s[at[known]]
    return until_s


POLICY = RoundPolicy(
    name="themis",
    summary="GPUs on leases, auctioned to the jobs that are furthest behind their fair finish.",
    paper="Themis (NSDI 2020)",
    level=Level.GRANTS,
    allocate=themis,
    remembers=(Leases,),
    ranges={"fairness": Number(0.0, 0.999), "lease_s": Number(1e-3, 1e9)},
    knows=frozenset({Knows.LENGTHS}),
)
