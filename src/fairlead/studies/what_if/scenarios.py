"""Scenarios side by side: the same present, each with its own changes, over the same seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlead.model.errors import InputError
from fairlead.rounds.state import State
from fairlead.studies.runs.origin import Origin
from fairlead.studies.what_if.changes import Hypothetical, ScaleArrivals, SubmitJobs
from fairlead.studies.what_if.figures import Figures, Ranged, figures_of, figures_to_json, is_assumed, over_seeds
from fairlead.studies.what_if.forward import forward

MOST_ROUNDS = 5000  # of one simulated future; a live service with short rounds would have more in a few days


@dataclass(frozen=True)
class Scenario:
    name: str
    changes: tuple[Hypothetical, ...] = ()


@dataclass(frozen=True)
class ScenarioAnswer:
    """The figures of one scenario over seeds."""

    name: str
    overall: Mapping[str, Ranged]
    tenants: Mapping[str, Mapping[str, Ranged]]
    new_jobs: Mapping[str, float | None]  # submitted job -> seconds until it starts, mean over seeds; None: in no seed
    arrivals_per_hour: float | None  # drawn at this rate; None: those that the journal has
    cpu_s: float

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "overall": figures_to_json(self.overall),
            "tenants": {name: figures_to_json(figures) for name, figures in self.tenants.items()},
            "submitted_start_in_s": dict(self.new_jobs),
            "arrivals_per_hour": self.arrivals_per_hour,
            "cpu_s": self.cpu_s,
        }


@dataclass(frozen=True)
class WhatIfAnswer:
    origin: str
    time_s: float
    active_jobs: int
    horizon_s: float
    seeds: tuple[int, ...]
    scenarios: list[ScenarioAnswer]
    round_s: float = 0.0  # of the simulations
    own_round_s: float = 0.0  # of the origin
    assumed_speeds: int = 0  # active jobs of models that nobody measured, which have no FTF

    def to_json(self) -> dict[str, Any]:
        return {
            "from": self.origin,
            "time_s": self.time_s,
            "active_jobs": self.active_jobs,
            "horizon_s": self.horizon_s,
            "seeds": list(self.seeds),
            "round_s": self.round_s,
            "jobs_of_unmeasured_models": self.assumed_speeds,
            "scenarios": [scenario.to_json() for scenario in self.scenarios],
        }


def ask_what_if(
    origin: Origin,
    scenarios: Sequence[Scenario],
    horizon_s: float,
    seeds: Sequence[int],
    tick: Callable[[float], None] | None = None,
    round_s: float | None = None,
) -> WhatIfAnswer:
    """Simulate every scenario over every seed. `tick` is called with the number of simulations that are done, in parts.

    A journal has its later arrivals; other origins get those of the recent rate, unless a scenario sets a load. Where
    nothing has to be drawn, one simulation is all seeds. Rounds are those of the origin, or longer if there would be
    more than `MOST_ROUNDS` of them, or `round_s` long.
    """
    _check_something_happens(origin, scenarios)
    own_s, state = origin.settings.round_s, origin.state
    used_s = max(own_s, horizon_s / MOST_ROUNDS) if round_s is None else round_s
    if used_s != own_s:
        origin = replace(origin, settings=replace(origin.settings, round_s=used_s), carried=None)
    answers: list[ScenarioAnswer] = []
    done = 0
    for scenario in scenarios:
        futures: list[_Simulated] = []
        for seed in seeds:
            if not futures or _is_drawn(origin, scenario):
                futures.append(
                    _simulate(origin, scenario, horizon_s, seed, _inside(tick, done, state.now_s, horizon_s))
                )
            done += 1
            if tick is not None:
                tick(done)
        answers.append(_answer(scenario, futures))
    assumed = sum(is_assumed(state, j) for j in state.active_jobs.tolist())
    return WhatIfAnswer(
        origin.name, state.now_s, state.active, horizon_s, tuple(seeds), answers, used_s, own_s, assumed
    )


def _check_something_happens(origin: Origin, scenarios: Sequence[Scenario]) -> None:
    """Refuse a journal at a time after its end; what is live may get jobs at any time."""
    brings_jobs = any(isinstance(change, SubmitJobs | ScaleArrivals) for one in scenarios for change in one.changes)
    if origin.journal is not None and not (origin.state.active or origin.future or brings_jobs):
        raise InputError(
            f"{origin.name}: no job is active then, and none arrives later; choose an earlier time, "
            "or add jobs with --submit or --load"
        )


def _inside(
    tick: Callable[[float], None] | None, done: int, now_s: float, horizon_s: float
) -> Callable[[State], None] | None:
    """Reports how far the simulation after the first `done` ones has come."""
    if tick is None:
        return None
    return lambda state: tick(done + min((state.now_s - now_s) / horizon_s, 1.0))


@dataclass(frozen=True)
class _Simulated:
    """What is kept of one future; its states are large."""

    figures: Mapping[str | None, Figures]
    new_start_s: Mapping[str, float | None]
    arrivals_per_hour: float | None
    cpu_s: float


def _is_drawn(origin: Origin, scenario: Scenario) -> bool:
    """Whether the future depends on the seed: on later arrivals, or on lengths that are neither declared nor known."""
    loads = any(isinstance(change, ScaleArrivals) for change in scenario.changes)
    new = [spec for change in scenario.changes if isinstance(change, SubmitJobs) for spec in change.jobs]
    specs = [*(origin.state.specs[j] for j in origin.state.active_jobs.tolist()), *origin.future, *new]
    unknown = any(spec.steps is None and spec.id not in origin.true_steps for spec in specs)
    return origin.journal is None or loads or unknown


def _simulate(
    origin: Origin, scenario: Scenario, horizon_s: float, seed: int, tick: Callable[[State], None] | None
) -> _Simulated:
    changes = scenario.changes
    draws = origin.journal is None or any(isinstance(change, ScaleArrivals) for change in changes)
    if origin.journal is None:
        changes = (ScaleArrivals(1.0), *changes)
    cpu_s = time.process_time()
    future = forward(origin, changes, horizon_s=horizon_s, seed=seed, audit=True, tick=tick)
    submitted = [spec.id for change in changes if isinstance(change, SubmitJobs) for spec in change.jobs]
    return _Simulated(
        figures=figures_of(future, horizon_s),
        new_start_s={id_: _since(future.jobs[id_].start_s, future.now_s) for id_ in submitted},
        arrivals_per_hour=future.later.per_hour if draws else None,
        cpu_s=time.process_time() - cpu_s,
    )


def _answer(scenario: Scenario, futures: Sequence[_Simulated]) -> ScenarioAnswer:
    figures = over_seeds([future.figures for future in futures])
    starts = {id_: [future.new_start_s[id_] for future in futures] for id_ in futures[0].new_start_s}
    return ScenarioAnswer(
        name=scenario.name,
        overall=figures[None],
        tenants={name: one for name, one in figures.items() if name is not None},
        new_jobs={id_: _mean([start_s for start_s in times if start_s is not None]) for id_, times in starts.items()},
        arrivals_per_hour=futures[0].arrivals_per_hour,
        cpu_s=sum(future.cpu_s for future in futures),
    )


def _since(time_s: float | None, now_s: float) -> float | None:
    return None if time_s is None else time_s - now_s


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
