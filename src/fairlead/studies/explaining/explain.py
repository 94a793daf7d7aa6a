"""The answer to "why" about one job, from a folded state alone. Whatever policy decided, the answer has the same form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import NotFoundError
from fairlead.model.explanation import Explanation, Holder, Stay, Takeover, TypeSpeed
from fairlead.model.lifecycle import HAS_GPUS, Phase
from fairlead.model.outcomes import Reason
from fairlead.model.public_job import PublicJob
from fairlead.model.units import format_duration
from fairlead.model.view import MIXED_TYPES, NO_TYPE
from fairlead.model.words import counted, did_you_mean
from fairlead.placement.moves import RESTARTS_WORTH, pays
from fairlead.rates.estimator import allowed_types
from fairlead.rates.impossible import why_never
from fairlead.rounds.loop import Settings
from fairlead.rounds.speeds import measured_rates
from fairlead.rounds.state import State
from fairlead.rounds.waiting import reason_sentence

UNDECIDED = "the next decision will consider it"
NOT_ASKED = "remedies were not asked for"
SLURM_DECIDES = "Slurm decides here, and what it will do is not simulated"
NO_TASK_YET = "this run assigns single tasks to GPUs, and none of its tasks has run yet"


def explain(state: State, settings: Settings, job: str, tenant: str | None = None) -> Explanation:
    """Why the job is where it is, at the time of the state.

    The reader belongs to `tenant` and sees its jobs only: others are counted, never named. None sees all.
    """
    if job not in state.position or (tenant is not None and state.specs[state.position[job]].tenant != tenant):
        known = [spec.id for spec in state.specs if tenant in (None, spec.tenant)]
        raise NotFoundError(f'there is no job "{job}" at this time; {did_you_mean(job, known)}')
    j = state.position[job]
    spec, phase, jobs = state.specs[j], Phase(int(state.phase[j])), np.array([j])
    queue = _queue(state)
    has_gpus = bool(state.held_gpus[j])
    until_s = state.now_s if np.isnan(state.end_s[j]) else float(state.end_s[j])
    ran_s = float(state.ran_at(jobs, until_s)[0])
    stay = _stay(state, settings, j) if has_gpus else None
    code, words = _reason(state, j, phase, stay)
    return Explanation(
        job=spec.id,
        tenant=spec.tenant,
        phase=phase.name.lower(),
        time_s=state.now_s,
        code=code,
        sentence=words,
        decided_s=_decided_s(state, j),
        gpus=spec.gpus,
        types=tuple(state.cluster.types[t] for t in usable_types(state, j)),
        position=int(np.searchsorted(queue, j)) + 1 if j in queue else None,
        waiting=len(queue),
        waited_s=max(until_s - float(state.arrival_s[j]) - ran_s, 0.0),
        ran_s=ran_s,
        restarts=int(state.restarts[j]),
        lost_gpu_hours=float(state.restart_gpu_s[j]) / 3600,
        terms=dict(state.terms.get(j, {})),
        holders=_holders(state, settings, j, tenant) if phase is Phase.WAITING else (),
        stay=stay,
        takeover=_takeover(state, j, tenant),
        expected_s=None,
        remedies=(),
        unchecked=None,
        speeds=_speeds(state, settings, j, NO_TYPE) if phase in (Phase.WAITING, Phase.HELD) else (),
    )


def explain_row(job: PublicJob, now_s: float) -> Explanation:
    """What a service says about a job that its scheduler does not know: it comes next, or it ended a while ago."""
    took = format_duration(max((now_s if job.end_s is None else job.end_s) - job.submitted_s, 0.0))
    sentence = {
        "submitted": "the scheduler has not read it yet",
        "finished": f"it finished {took} after it was submitted",
        "failed": f"it failed {took} after it was submitted: {job.reason or 'without a report'}",
        "cancelled": f"it was cancelled {took} after it was submitted",
    }.get(job.phase, f"it is {job.phase}")
    return Explanation(
        job=job.id,
        tenant=job.tenant,
        phase=job.phase,
        time_s=now_s,
        code=job.phase.capitalize(),
        sentence=sentence,
        decided_s=job.end_s,
        gpus=job.gpus,
        types=job.types,
        position=None,
        waiting=None,
        waited_s=None,
        ran_s=None,
        restarts=job.restarts,
        lost_gpu_hours=None,
        terms={},
        holders=(),
        stay=None,
        takeover=None,
        expected_s=None,
        remedies=(),
        unchecked=None,
    )


def left_unchecked(answer: Explanation, why: str) -> Explanation:
    """The answer about a job that could be helped, with the reason why nothing was simulated for it."""
    return replace(answer, unchecked=why) if answer.phase in ("waiting", "held") else answer


def usable_types(state: State, j: int) -> list[int]:
    """Types on which the job may run, alone or in a mix."""
    jobs = np.array([j])
    return np.flatnonzero((measured_rates(state, jobs)[0] > 0) | state.mixable_at(jobs, state.now_s)[0]).tolist()


def keeps_until_s(state: State, settings: Settings, j: int) -> float | None:
    """Until when no decision takes the job's GPUs away; None if one may do so now."""
    until_s = float(state.since_s[j]) + max(settings.min_run_s, RESTARTS_WORTH * float(state.restart_s[j]))
    return until_s if until_s > state.now_s else None


def _queue(state: State) -> IntArray:
    """Jobs that wait, in order of arrival."""
    jobs = state.active_jobs
    return np.asarray(jobs[state.phase[jobs] == Phase.WAITING])


def _decided_s(state: State, j: int) -> float | None:
    """Since when the reason applies."""
    for time_s in (state.end_s[j], state.since_s[j], state.reason_s[j]):
        if np.isfinite(time_s) and (time_s != state.reason_s[j] or state.reason[j]):
            return float(time_s)
    return None


def _reason(state: State, j: int, phase: Phase, stay: Stay | None) -> tuple[str, str]:
    spec = state.specs[j]
    if phase is Phase.WAITING or phase is Phase.HELD:
        reason = Reason(int(state.reason[j]))
        if reason is Reason.NEVER_FITS:
            return reason.code, why_never(spec, state.cluster)
        if reason is Reason.UNDECIDED:
            return reason.code, NO_TASK_YET if state.served else UNDECIDED
        return reason.code, (reason_sentence(state, j) or "").removeprefix(f"{reason.code}: ")
    code = phase.name.capitalize()
    if stay is not None:
        return code, _stays(stay, state.now_s)
    if phase in HAS_GPUS:
        if j in state.served:
            return code, f"its tasks hold {state.mean_gpus[j]:.3g} GPUs on average, which pass from job to job"
        return code, "a decision has stopped it, and its processes are saving their state"
    return code, _ending(state, j, phase)


def _stays(stay: Stay, now_s: float) -> str:
    held_s = format_duration(now_s - stay.since_s)
    where = f"{stay.gpus} {stay.type}" if stay.type != "mixed" else f"{counted(stay.gpus, 'GPU')} of several types"
    here = next((row for row in stay.speeds if row.type == stay.type), None)
    speed = ""
    if here is not None and here.relative:
        is_fastest = here.relative == 1
        speed = ", its fastest type" if is_fastest else f", at {here.relative:.0%} of the speed of its fastest type"
    if stay.measured:
        return f"it has held {where} for {held_s}, so that its model is measured there"
    return f"it has held {where} for {held_s}{speed}"


def _ending(state: State, j: int, phase: Phase) -> str:
    took_s = format_duration(float(state.end_s[j]) - float(state.arrival_s[j]))
    departure = state.departures.get(j)
    if phase is Phase.FAILED:
        detail = departure.detail if departure is not None and departure.detail else "without a report"
        return f"it failed {took_s} after it arrived: {detail}"
    if phase is Phase.CANCELLED:
        return f"it was cancelled {took_s} after it arrived"
    return f"it finished {took_s} after it arrived"


def _end_s(state: State, j: int) -> float | None:
    """When a running job ends at its present speed; None if its length or speed is unknown."""
    rate, total = float(state.rate[j]), float(state.total[j])
    if rate <= 0 or np.isnan(total):
        return None
    left = max(total - float(state.done_at(np.array([j]), state.now_s)[0]), 0.0)
    return max(state.now_s, float(state.resume_s[j])) + left / rate


def _holders(state: State, settings: Settings, j: int, tenant: str | None) -> tuple[Holder, ...]:
    """Jobs that hold GPUs of the job's types, those that end first at the top; jobs of other tenants as one row."""
    usable = set(usable_types(state, j) or allowed_types(state.specs[j], state.cluster))
    rows, others = list[Holder](), list[dict[str, int]]()
    for k in np.flatnonzero(state.held_gpus[: state.jobs]).tolist():
        by_type = state.cluster.gpus_by_type(state.spots[k])
        gpus = {state.cluster.types[t]: count for t, count in by_type.items() if t in usable}
        spec = state.specs[k]
        if gpus and tenant not in (None, spec.tenant):
            others.append(gpus)
        elif gpus:
            rows.append(Holder(spec.id, spec.tenant, 1, gpus, _end_s(state, k), keeps_until_s(state, settings, k)))
    rows.sort(key=lambda row: np.inf if row.end_s is None else row.end_s)  # stable: else in order of arrival
    return (*rows, *((_together(others),) if others else ()))


def _together(holdings: list[dict[str, int]]) -> Holder:
    types = dict.fromkeys(name for gpus in holdings for name in gpus)
    return Holder(
        None, None, len(holdings), {name: sum(gpus.get(name, 0) for gpus in holdings) for name in types}, None, None
    )


def _takeover(state: State, j: int, tenant: str | None) -> Takeover | None:
    departure = state.departures.get(j)
    if departure is None:
        return None
    tenants = {id_: state.specs[state.position[id_]].tenant for id_ in departure.taken_by if id_ in state.position}
    seen = tuple(id_ for id_ in departure.taken_by if tenant in (None, tenants.get(id_)))
    others = len(departure.taken_by) - len(seen)
    return Takeover(departure.time_s, departure.how, departure.detail, seen, others, departure.gain)


def _stay(state: State, settings: Settings, j: int) -> Stay:
    type_ = int(state.held_type[j])
    return Stay(
        gpus=int(state.held_gpus[j]),
        type="mixed" if type_ == MIXED_TYPES else state.cluster.types[type_],
        nodes={state.cluster.nodes[node]: count for node, count in state.spots[j]},
        since_s=float(state.since_s[j]),
        keeps_until_s=keeps_until_s(state, settings, j),
        end_s=_end_s(state, j),
        measured=j in state.trials.on,
        speeds=_speeds(state, settings, j, type_),
    )


def _speeds(state: State, settings: Settings, j: int, here: int) -> tuple[TypeSpeed, ...]:
    """Every type of the cluster, the fastest first."""
    rate = measured_rates(state, np.array([j]))[0]  # t
    free = free_by_type(state)
    fastest = max(float(rate.max(initial=0.0)), 1e-300)
    order = np.argsort(-rate, kind="stable").tolist()
    rows = [(t, _why_not(state, settings, j, here, t, rate, free)) for t in order if state.cluster.capacity[t]]
    return tuple(
        TypeSpeed(state.cluster.types[t], float(rate[t]) / fastest, int(free[t]), note, float(rate[t]))
        for t, note in rows
    )


def free_by_type(state: State) -> IntArray:
    """t  GPUs that are free on nodes that are up."""
    free = np.bincount(state.cluster.node_type, state.node_free * state.node_up, len(state.cluster.types))
    return free.astype(np.int64)


def _why_not(state: State, settings: Settings, j: int, here: int, t: int, rate: FloatArray, free: IntArray) -> str:
    spec = state.specs[j]
    if t == here:
        return "it is here"
    if t not in allowed_types(spec, state.cluster):
        return f"its owner allows {', '.join(spec.types)}"
    if rate[t] <= 0:
        return f"it cannot run there on {counted(spec.gpus, 'GPU')}"
    if here == NO_TYPE:
        return f"{_free_of(int(free[t]), spec.gpus)} free" if free[t] < spec.gpus else "enough GPUs are free"
    now = float(rate[here]) if here >= 0 else float(state.rate[j])
    if rate[t] <= now:
        return "no faster than here"
    restart_s = float(state.restart_s[j])
    if not pays(now, float(rate[t]), restart_s, settings.round_s):
        kept_s = max(settings.round_s, RESTARTS_WORTH * restart_s)
        cost, kept = format_duration(restart_s), format_duration(kept_s)
        return f"a move costs {cost}, more than it gains in the {kept} for which it is certain to stay"
    if free[t] < spec.gpus:
        return f"{_free_of(int(free[t]), spec.gpus)} free"
    return "a move would pay; the policy has not chosen it"


def _free_of(free: int, asked: int) -> str:
    """The beginning of a sentence about too few free GPUs."""
    return "no GPU is" if not free else f"{free} of the {asked} GPUs that it asks for {'is' if free == 1 else 'are'}"
