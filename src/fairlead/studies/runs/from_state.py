"""Simulations that start from a folded state: that of a journal at some time, or of a live service."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from fairlead import __version__
from fairlead.model.errors import InputError
from fairlead.model.events import Event
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import HAS_GPUS, Phase
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import Estimator
from fairlead.rates.three_layer import Learns
from fairlead.rounds.beginning import beginning_to_json
from fairlead.rounds.copying import copied
from fairlead.rounds.journal import Header, NoJournal
from fairlead.rounds.loop import Carried, Journal, Settings, next_boundary, run, settings_to_json
from fairlead.rounds.remembering import CARRIED, carried_to_json
from fairlead.rounds.state import State
from fairlead.sim.rounds.engine import SimEngine
from fairlead.sim.rounds.news import WithNews
from fairlead.sim.rounds.until import Until
from fairlead.sim.truth import Truth, World
from fairlead.studies.runs.simulate import BothJournals, Result

# (job, steps that it has done) -> its true steps; None: the declared number.
Lengths = Callable[[JobSpec, float], float | None]
_UNFINISHED = (Phase.WAITING, *HAS_GPUS)
_WORLD = World()


def simulate_from(
    state: State,
    policy: Policy,
    settings: Settings,
    world: World = _WORLD,
    *,
    future: Sequence[JobSpec] = (),
    lengths: Lengths | None = None,
    rates: Estimator | None = None,
    carried: Carried | None = None,
    faults_since_s: float | None = None,
    news: tuple[Event, ...] = (),
    until_s: float | None = None,
    is_enough: Callable[[], bool] | None = None,
    journal: Journal | None = None,
    watch: Journal | None = None,
    tick: Callable[[State], None] | None = None,
) -> Result:
    """Simulate from `state`, which does not change, to the end or to `until_s`; the result includes the time before.

    The simulation ends earlier once `is_enough` returns True.

    `future` are later arrivals in order of time; each must be able to run somewhere. A job has its declared length
    unless `lengths` returns another number of steps, which it must for active jobs of unknown length. True speeds are
    those of `rates`, or those of the state's estimator, including all that it has learnt unless the world has hidden
    speeds of its own.

    The policy's memory and the deficits of tenants are not in the state itself. With `carried` they are kept, and so are the
    boundaries of rounds; otherwise they start empty, and the first decision is made at the next boundary of a round.

    Faults are drawn as if the world began now, or at `faults_since_s`: 0 continues the faults of a simulated run.

    `news` are events of this instant that come first. They let a scheduler that decides at events look at once.

    `watch` receives the same records as the journal; without a journal its decisions carry no reasons.
    """
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    check_rounds(state)
    _check_future(state, future)
    own = copied(state)
    truth = _truth(own, future, world, lengths, rates)
    engine = SimEngine.from_state(truth, own, own.now_s if faults_since_s is None else faults_since_s)
    world_engine = WithNews(engine, news) if news else engine
    bounded = Until(world_engine, math.inf if until_s is None else until_s, is_enough)
    begin = carried or _fresh(own, settings.round_s)
    receiver = journal or watch or NoJournal()
    journals = BothJournals(journal, watch) if journal is not None and watch is not None else receiver
    done = run(bounded, own, policy, settings, journals, tick, begin, explain=journal is not None)
    ended_early = is_enough is not None and is_enough()
    if until_s is not None and not ended_early and (own.active or own.jobs < len(truth.jobs)):
        own.pass_time(max(until_s, own.now_s))
    return Result(own, done, time.process_time() - cpu_s, time.perf_counter() - wall_s)


def check_rounds(state: State) -> None:
    if state.served:
        raise InputError("runs of single tasks cannot be continued from a state; choose a run of rounds")


def header_from(
    header: Header, state: State, policy: Policy, settings: Settings, world: World, carried: Carried | None = None
) -> Header:
    """The header of a journal that begins from `state`, whose own header is `header`.

    Its replays start with what is `carried`, or without memory.
    """
    more = {key: value for key, value in header.more.items() if key not in ("trace", "begins", CARRIED)}
    if carried is not None:
        more[CARRIED] = carried_to_json(carried, policy, state.cluster)
    more |= {"version": __version__, "level": policy.level, "world": asdict(world), "begins": beginning_to_json(state)}
    return replace(
        header,
        cluster=state.cluster,  # at the time of the state
        policy=policy.name,
        parameters=policy.parameters,
        settings=settings_to_json(settings),
        more=more,
    )


def _fresh(state: State, round_s: float) -> Carried:
    """Empty memory; a round in which jobs have started at exactly this time is not decided a second time."""
    now_s, fresh = state.now_s, Carried.fresh(state)
    decided = (state.since_s[: state.jobs] == now_s).any() and next_boundary(now_s, -math.inf, round_s) == now_s
    return replace(fresh, last_s=now_s) if decided else fresh


def _check_future(state: State, future: Sequence[JobSpec]) -> None:
    last_s = state.now_s
    for spec in future:
        if spec.arrival_s < last_s:
            raise InputError(
                f"job {spec.id} arrives at {spec.arrival_s:g} s, wanted at {last_s:g} s or later: later arrivals are "
                "sorted, and none of them comes before the state"
            )
        if spec.id in state.position:
            raise InputError(f"job {spec.id} is in the state already; give later arrivals other ids")
        last_s = spec.arrival_s


def _truth(
    state: State, future: Sequence[JobSpec], world: World, lengths: Lengths | None, rates: Estimator | None
) -> Truth:
    estimator = state.estimator
    hidden = rates is not None or world.hides_speeds
    learnt = estimator.copy() if isinstance(estimator, Learns) and not hidden else None
    jobs = [*_known(state, lengths), *(_with_length(spec, 0.0, lengths) for spec in future)]
    # The jobs of a state have the models that their owners declared.
    return Truth(jobs, state.cluster, rates or estimator, replace(world, declared_speeds=()), learnt)


def _known(state: State, lengths: Lengths | None) -> list[JobSpec]:
    jobs = list(state.specs)
    for j, spec in enumerate(jobs):
        if Phase(int(state.phase[j])) not in _UNFINISHED:
            jobs[j] = (
                spec if spec.steps is not None else replace(spec, steps=1.0)
            )  # it never runs again, so any length will do
    unfinished = state.active_jobs
    for j, samples in zip(unfinished.tolist(), state.done_at(unfinished, state.now_s).tolist(), strict=True):
        done = samples / state.estimator.samples_per_step(jobs[j].model, jobs[j].gpus)
        jobs[j] = _with_length(jobs[j], done, lengths)
    return jobs


def _with_length(spec: JobSpec, done: float, lengths: Lengths | None) -> JobSpec:
    steps = lengths(spec, done) if lengths is not None else None
    if steps is None and spec.steps is None:
        raise InputError(
            f"the length of job {spec.id} is unknown, and a simulation needs one; assume how much longer such jobs run "
            "(--unknown-lasts on the command line)"
        )
    return spec if steps is None else replace(spec, steps=steps)
