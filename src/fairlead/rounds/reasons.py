"""Why jobs wait, which jobs replace stopped ones and what the changes gain, derived from the draft of any policy.

The journal checker verifies the reasons from the journal alone; it shares no code with these rules.
"""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import NOWHERE, Placement, Shares, Spot
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.decision import Cause
from fairlead.model.outcomes import NO_OUTCOMES, Outcomes, Reason
from fairlead.model.trial_jobs import WaitsForTrials
from fairlead.model.view import View
from fairlead.placement.pool import free_after
from fairlead.rounds.draft import Draft


def outcomes(draft: Draft) -> Outcomes:
    """Why jobs wait, for jobs whose reason has changed: those that the policy sees, and those of new models."""
    seen = _seen(draft)
    waits = [job for job in draft.view.waiting_for_trials if job.job not in draft.trial_starts]
    return _with_new_models(seen, waits) if waits else seen


def _with_new_models(seen: Outcomes, waits: list[WaitsForTrials]) -> Outcomes:
    """The outcomes with those of jobs that wait until their model was measured; policies have no terms for them."""
    none = np.zeros(len(waits), dtype=np.int64)
    columns = {
        "job": [job.job for job in waits],
        "reason": [Reason.MEASURING] * len(waits),
        "wanted": [job.gpus for job in waits],
        "free": none,
        "a": [job.tried for job in waits],
        "b": [job.left for job in waits],
    }
    joined = {name: np.append(getattr(seen, name), np.array(values)) for name, values in columns.items()}
    order = np.argsort(joined["job"], kind="stable")
    terms = None if seen.terms is None else np.vstack((seen.terms, np.zeros((len(waits), len(seen.labels)))))[order]
    return Outcomes(**{name: values[order] for name, values in joined.items()}, labels=seen.labels, terms=terms)


def _seen(draft: Draft) -> Outcomes:
    """Jobs without GPUs whose reason has changed. The last rule that applies determines the reason:

    Share, Order     the policy's choice: Share at the level of shares, else Order
    Window           the policy did not consider the job
    Capacity         within a round: running jobs stay, and no type has enough free GPUs
    MinRun           at a round: jobs that must stay leave too few GPUs, or the policy wanted to give the job some
    Fragmented       enough are free, but not on one node, not on nodes where it runs, or not on as many as it needs
    Quota            enough are free, but its tenant may not use them
    PreemptionLimit  the policy wanted to give the job GPUs of jobs that may not be pre-empted now
    NodeDown         the nodes that are up cannot hold it
    """
    view = draft.view
    gpus = view.held_gpus.copy()  # j  after the decision
    for j, spot in draft.changed.items():
        gpus[j] = sum(count for _, count in spot)
    rows = (gpus == 0).nonzero()[0]
    if not rows.size:
        return NO_OUTCOMES
    after = _After(draft, gpus, rows)
    reason = _reasons(draft, after)
    changed = reason != view.reason[rows]
    if not changed.any():
        return NO_OUTCOMES
    return _with_numbers(draft, after.only(changed), reason[changed])


def successors(draft: Draft, stop: dict[int, Spot], start: dict[int, Spot]) -> dict[int, tuple[int, ...]]:
    """Job that stops and does not start elsewhere -> jobs that start on its nodes; by position in the state."""
    pre_empted = [j for j in stop if j not in start]
    if not pre_empted:
        return {}
    on_node: dict[int, list[int]] = {}
    for k, spot in start.items():
        for node, _ in spot:
            on_node.setdefault(node, []).append(k)
    job = draft.view.position
    by_node = {node: set(job[rows].tolist()) for node, rows in on_node.items()}
    for trial, spot in draft.trial_starts.items():
        for node, _ in spot:
            by_node.setdefault(node, set()).add(trial)
    return {int(job[j]): tuple(sorted({k for node, _ in stop[j] for k in by_node.get(node, ())})) for j in pre_empted}


def gain(view: View, stop: dict[int, Spot], start: dict[int, Spot]) -> float:
    """GPUs at full speed after the changes, less those before: sum of GPUs x rate / the job's fastest rate."""
    if not stop and not start:
        return 0.0
    at_full_speed = _at_full_speed(view, np.array([*stop, *start]), [*stop.values(), *start.values()])
    return float(at_full_speed[len(stop) :].sum() - at_full_speed[: len(stop)].sum())


def _at_full_speed(view: View, rows: IntArray, spots: list[Spot]) -> FloatArray:
    """r  GPUs x speed relative to the job's fastest type. Spots of several nodes or of another width are looked up."""
    gpus = np.array([spot[0][1] for spot in spots])
    type_of = view.cluster.type_of
    rate = view.ideal_rate.take(rows, axis=0)  # r,t
    speed = rate[np.arange(len(rows)), [type_of[spot[0][0]] for spot in spots]]
    unusual = (gpus != view.width.take(rows)).nonzero()[0].tolist()
    for r in {*unusual, *[r for r, spot in enumerate(spots) if len(spot) > 1]}:
        gpus[r] = sum(count for _, count in spots[r])
        speed[r] = view.rate_on(int(rows[r]), spots[r])
    fastest = rate.max(axis=1)
    # A job that runs only as a mix of types has no fastest type; its mix is full speed.
    return np.asarray(gpus * (speed / np.where(fastest > 0, fastest, speed)))


class _After:
    """The cluster after the decision, from the perspective of the waiting jobs (r)."""

    def __init__(self, draft: Draft, gpus: IntArray, rows: IntArray) -> None:
        view = draft.view
        self._draft = draft
        self.rows = rows  # r -> j
        self.gpus = gpus  # j  GPUs that jobs hold
        self.width: IntArray = view.width[rows]  # r
        self.runs: BoolArray = view.ideal_rate[rows] > 0  # r,t
        self.mixes: BoolArray = np.asarray(~self.runs.any(axis=1))  # r  runs only on a mix of types
        if self.mixes.any():
            self.runs[self.mixes] = view.mixable[rows[self.mixes]]
        before = (view.spots.get(j, NOWHERE) for j in draft.changed)
        taken = (*draft.changed.values(), *draft.trial_starts.values())
        self.node_free = free_after(view.node_free, taken=taken, given_back=before)  # n
        self.free = np.bincount(view.cluster.node_type, self.node_free, len(view.capacity)).astype(np.int64)  # t
        self.most_free = self.best(self.free)  # r
        self.fits: BoolArray = self.most_free >= self.width  # r

    def only(self, which: BoolArray) -> _After:
        """The same for a subset of the jobs."""
        return self if which.all() else _After(self._draft, self.gpus, self.rows[which])

    def best(self, by_type: IntArray | FloatArray) -> IntArray:
        """r  the largest number (t) among types on which the job runs; their sum if it needs a mix."""
        one = self.most(by_type)
        return np.where(self.mixes, self.total(by_type).astype(np.int64), one) if self.mixes.any() else one

    def most(self, by_type: IntArray | FloatArray) -> IntArray:
        """r  the largest number (t) among types on which the job runs."""
        return np.asarray(np.where(self.runs, by_type, 0).max(axis=1, initial=0))

    def total(self, by_type: IntArray | FloatArray) -> FloatArray:
        """r  the sum (t) over types on which the job runs."""
        return np.asarray(self.runs @ by_type, dtype=np.float64)


def _reasons(draft: Draft, after: _After) -> IntArray:
    """r  The reason of every waiting job."""
    view, cause = draft.view, draft.cause
    policys_choice = Reason.SHARE if isinstance(draft.allocation, Shares) else Reason.ORDER
    reason = np.full(len(after.rows), policys_choice, dtype=np.int64)
    considered = draft.allocation.answer.considered
    if considered is not None:
        reason[~considered[after.rows]] = Reason.WINDOW
    if cause is Cause.EVENT:  # a job that was not served at the round keeps that reason
        before = view.reason[after.rows]
        reason[~after.fits] = np.where(np.isin(before, _TURNS), before, Reason.CAPACITY)[~after.fits]
    elif np.count_nonzero(draft.pinned):
        too_few = after.best(view.capacity - _pinned_gpus(draft)) < after.width
        reason[~after.fits & (too_few | _granted(draft)[after.rows])] = Reason.MIN_RUN
    if draft.displaced:
        reason[np.isin(after.rows, list(draft.displaced))] = policys_choice
    if np.count_nonzero(after.fits):
        reason[after.fits & _fragmented(draft, after)] = Reason.FRAGMENTED
        if view.quotas is not None:
            reason[after.fits & ~_TenantHoldings(draft, after).allowed] = Reason.QUOTA
    if draft.held_back:
        reason[np.isin(after.rows, list(draft.held_back))] = Reason.PREEMPTION_LIMIT
    if draft.denied:
        reason[np.isin(after.rows, list(draft.denied))] = Reason.QUOTA
    if np.count_nonzero(view.capacity != view.cluster.capacity):
        reason[after.best(view.capacity) < after.width] = Reason.NODE_DOWN
    return reason


_TURNS = (Reason.SHARE, Reason.ORDER, Reason.WINDOW, Reason.MIN_RUN, Reason.PREEMPTION_LIMIT)


def _granted(draft: Draft) -> BoolArray:
    """j  Jobs to which the policy wanted to give GPUs now."""
    granted = np.zeros(draft.view.jobs, dtype=np.bool_)
    if isinstance(draft.allocation, Placement):
        granted[:] = [bool(spot) for spot in draft.allocation.spots]
    elif draft.wanted is not None:
        granted[draft.wanted.jobs] = True
    return granted


def _pinned_gpus(draft: Draft) -> IntArray:
    """t  GPUs that pinned jobs hold."""
    view = draft.view
    count = np.zeros(len(view.capacity), dtype=np.int64)
    for j in draft.pinned.nonzero()[0].tolist():
        for t, gpus in view.cluster.gpus_by_type(view.spots[j]).items():
            count[t] += gpus
    return count


def _most_on_one_node(draft: Draft, after: _After) -> IntArray:
    """t  Free GPUs on the node with the most."""
    most = np.zeros(len(after.free), dtype=np.int64)
    np.maximum.at(most, draft.view.cluster.node_type, after.node_free)
    return most


def _fragmented(draft: Draft, after: _After) -> BoolArray:
    """r  The policy granted GPUs that no spot could hold, or one node could hold the job but none has room."""
    one_node = after.most(draft.view.cluster.largest_node) >= after.width
    no_room = after.most(_most_on_one_node(draft, after)) < after.width
    no_spot = _granted(draft)[after.rows] & ~draft.pinned.any()  # beside pinned jobs it may have been wanted elsewhere
    fragmented = np.asarray(no_spot | (one_node & no_room))
    exact = draft.view.exact_nodes[after.rows]
    for r in exact.nonzero()[0].tolist():
        fragmented[r] = not _has_gap(draft, after, r, int(exact[r]))
    return fragmented


def _has_gap(draft: Draft, after: _After, r: int, nodes: int) -> bool:
    """Whether a type on which the job runs has as many nodes with room for their part as the job needs."""
    roomy = draft.view.cluster.node_type[after.node_free >= after.width[r] // nodes]
    return bool((np.bincount(roomy, minlength=len(after.free))[after.runs[r]] >= nodes).any())


class _TenantHoldings:
    """What tenants hold after the decision (u,t), what each may hold (u,t), and which jobs (r) are within that."""

    def __init__(self, draft: Draft, after: _After) -> None:
        view, quotas = draft.view, draft.view.quotas
        assert quotas is not None
        self.held: FloatArray = np.zeros_like(quotas.most)
        for j in after.gpus.nonzero()[0].tolist():
            spot = draft.changed.get(j, view.spots.get(j, NOWHERE))
            for t, gpus in view.cluster.gpus_by_type(spot).items():
                self.held[view.tenant[j], t] += gpus
        types = range(len(after.free))
        self.may: FloatArray = np.column_stack(
            [quotas.may_hold(t, self.held[:, t], float(after.free[t])) for t in types]
        )
        u = view.tenant[after.rows]
        room = np.minimum(self.may[u] - self.held[u], after.free)  # r,t
        one_type = (after.runs & (room >= after.width[:, None])).any(axis=1)
        together = np.where(after.runs, room, 0).sum(axis=1) >= after.width
        self.allowed: BoolArray = np.where(after.mixes, together, one_type)


def _with_numbers(draft: Draft, after: _After, reason: IntArray) -> Outcomes:
    a, b = np.zeros(len(reason)), np.zeros(len(reason))
    for code in np.unique(reason).tolist():
        of_this = reason == code
        numbers = _NUMBERS.get(code)
        if numbers is not None:
            a[of_this], b[of_this] = numbers(draft, after.only(of_this))
    terms = draft.allocation.answer.terms
    return Outcomes(
        job=draft.view.position[after.rows],
        reason=reason,
        wanted=after.width,
        free=after.most_free.astype(np.int64),
        a=a,
        b=b,
        labels=() if terms is None else terms.labels,
        terms=None if terms is None else np.nan_to_num(terms.values[after.rows]),  # JSON has no infinity
    )


_Numbers = tuple[FloatArray | float, FloatArray | float]


def _share(draft: Draft, after: _After) -> _Numbers:
    shares = draft.allocation
    assert isinstance(shares, Shares)
    owner = shares.owner_of[after.rows]
    held = np.bincount(shares.owner_of, after.gpus, len(shares.owner_key)).astype(np.float64)  # o
    return shares.gpus.sum(axis=1)[owner], held[owner]


def _order(draft: Draft, after: _After) -> _Numbers:
    return float(np.count_nonzero(after.gpus) + len(draft.trial_starts)), after.total(draft.view.capacity - after.free)


def _window(draft: Draft, after: _After) -> _Numbers:
    considered = draft.allocation.answer.considered
    return (0.0 if considered is None else float(np.count_nonzero(considered))), 0.0


def _min_run(draft: Draft, after: _After) -> _Numbers:
    return after.total(_pinned_gpus(draft)), draft.pins_until_s


def _pre_emption_limit(draft: Draft, after: _After) -> _Numbers:
    assert draft.budget is not None
    return float(draft.budget.spent[draft.scope]), float(draft.budget.most[draft.scope])


def _fragments(draft: Draft, after: _After) -> _Numbers:
    with_some = np.bincount(draft.view.cluster.node_type, after.node_free > 0, len(after.free))
    return after.most(_most_on_one_node(draft, after)).astype(np.float64), after.total(with_some)


def _quota(draft: Draft, after: _After) -> _Numbers:
    """GPUs held and allowed, for the type with the most free GPUs on which the job runs."""
    of_tenants = _TenantHoldings(draft, after)
    u, t = draft.view.tenant[after.rows], np.where(after.runs, after.free, -1).argmax(axis=1)
    return of_tenants.held[u, t], of_tenants.may[u, t]


def _node_down(draft: Draft, after: _After) -> _Numbers:
    return after.total(draft.view.cluster.capacity), after.best(draft.view.capacity).astype(np.float64)


_NUMBERS = {
    Reason.SHARE: _share,
    Reason.ORDER: _order,
    Reason.WINDOW: _window,
    Reason.MIN_RUN: _min_run,
    Reason.PREEMPTION_LIMIT: _pre_emption_limit,
    Reason.FRAGMENTED: _fragments,
    Reason.QUOTA: _quota,
    Reason.NODE_DOWN: _node_down,
}
