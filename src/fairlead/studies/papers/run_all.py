"""Runs the four studies by name: their parts in order or in parallel processes, stored as soon as they are done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead.model.errors import FairleadError
from fairlead.model.words import counted
from fairlead.rates.profile import Profile
from fairlead.studies.papers.claim_tables import Study
from fairlead.studies.papers.costs import COSTS
from fairlead.studies.papers.fft import claims as fft_claims
from fairlead.studies.papers.fft import experiment as fft
from fairlead.studies.papers.hare import claims as hare_claims
from fairlead.studies.papers.hare import experiment as hare
from fairlead.studies.papers.hops import claims as hops_claims
from fairlead.studies.papers.hops import experiment as hops
from fairlead.studies.papers.oef import claims as oef_claims
from fairlead.studies.papers.oef import experiment as oef
from fairlead.studies.papers.results import (
    NAMES,
    StudyResults,
    find_results,
    keep_results,
    new_results,
    scale_digest,
)
from fairlead.studies.runs.process_pool import Outcome, run_in_processes
from fairlead.studies.runs.store import Store

# The modules that run an experiment and that compare it with its paper.
STUDIES: dict[str, tuple[Any, Any]] = {
    "oef": (oef, oef_claims),
    "hare": (hare, hare_claims),
    "fft": (fft, fft_claims),
    "hops": (hops, hops_claims),
}
assert tuple(STUDIES) == NAMES
LONGEST_FIRST = ("hops", "hare", "fft", "oef")


@dataclass(frozen=True, slots=True)
class StudyPart:
    """One part of a study, in a form that can be sent to another process."""

    study: str
    part: str
    scale: Any
    table: Profile | None = None  # of further speeds, for OEF


@dataclass(frozen=True, slots=True)
class Measurement:
    numbers: Any
    cpu_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """The progress after a part. `left_s` is the estimated remaining time of the study at the pace so far."""

    study: str
    part: str
    done: int
    of: int
    left_s: float


Tell = Callable[[StudyProgress], None]


def study_of(results: StudyResults) -> Study:
    """The study with its numbers next to its paper's."""
    _, claims = STUDIES[results.name]
    beside: Study = claims.study(results.scale, results.parts)
    return replace(beside, made=results.made)


def scale_of(name: str, quick: bool) -> Any:
    experiment, _ = STUDIES[name]
    return experiment.QUICK if quick else experiment.FULL


def label(name: str, scale: Any) -> str:
    """The label of a scale in file names, so that results of two scales do not overwrite each other."""
    known = {"full": scale_of(name, False), "quick": scale_of(name, True)}
    return next((word for word, one in known.items() if one == scale), scale_digest(scale))


def parts_of(name: str, scale: Any, table: Profile | None = None) -> dict[str, Callable[[], Any]]:
    """The function that measures each part, in the order of the experiment. Nothing is measured yet."""
    experiment, _ = STUDIES[name]
    return dict(experiment.reproduce(scale, table) if table else experiment.reproduce(scale))


def costs_of(name: str, scale: Any, table: Profile | None = None) -> dict[str, float]:
    """The cost of each part relative to the others; equal costs if they have not been measured."""
    parts = parts_of(name, scale, table)
    known = COSTS[name](scale) if name in COSTS else []
    return dict(zip(parts, known + [1.0] * (len(parts) - len(known)), strict=True))


def measure_part(part: StudyPart) -> Measurement:
    measure = parts_of(part.study, part.scale, part.table)[part.part]
    cpu_s, wall_s = time.process_time(), time.monotonic()
    numbers = measure()
    return Measurement(numbers, time.process_time() - cpu_s, time.monotonic() - wall_s)


def run_study(name: str, scale: Any, tell: Tell, table: Profile | None = None) -> StudyResults:
    """Run one study. Calls `tell` after every part; `table` is a further table of speeds for OEF."""
    (results,) = run_studies({name: scale}, 1, tell, table=table)
    return results


def run_studies(
    scales: Mapping[str, Any],
    workers: int,
    tell: Tell,
    store: Store | None = None,
    say: Callable[[str], None] = lambda _: None,
    *,
    older: bool = False,
    table: Profile | None = None,
) -> list[StudyResults]:
    """Run the studies in `scales` by name, in the order of the page.

    With a store, parts that it has for the same scale and code are not measured again (with `older`: for any scale and
    code), and every part is stored when it is done. `say` receives remarks on stored results that cannot be used. With several
    workers, a part that fails does not stop the others.
    """
    results = {name: _stored(store, name, scale, older, say) for name, scale in scales.items()}
    costs = {name: costs_of(name, one.scale, table) for name, one in results.items()}
    todo = [
        StudyPart(name, part, results[name].scale, table)
        for name in LONGEST_FIRST
        if name in scales
        for part in costs[name]
        if part not in results[name].parts
    ]
    wall_s: dict[str, dict[str, float]] = {name: {} for name in scales}  # of the parts that were measured now
    failed: dict[str, dict[str, str]] = {}  # study -> part -> reason
    for outcome in _measured(todo, workers):
        name, part, done = outcome.task.study, outcome.task.part, outcome.result
        if done is None:
            failed.setdefault(name, {})[part] = outcome.reason
            continue
        results[name] = results[name].with_part(part, done.numbers, done.cpu_s, list(costs[name]))
        if store:
            keep_results(store, results[name], label(name, scales[name]))
        wall_s[name][part] = done.wall_s
        tell(_progress(results[name], part, costs[name], wall_s[name], workers))
    if failed:
        raise FairleadError("; ".join(_failure(name, reasons, costs[name]) for name, reasons in failed.items()))
    return [results[name] for name in NAMES if name in scales]


def _stored(store: Store | None, name: str, scale: Any, older: bool, say: Callable[[str], None]) -> StudyResults:
    if store is None:
        return new_results(name, scale)
    results, remark = find_results(store, name, scale, label(name, scale), older=older)
    if remark:
        say(f"{name}: {remark}")
    return results


def _failure(name: str, reasons: Mapping[str, str], order: Iterable[str]) -> str:
    """The message for the first part that failed; the others usually fail for the same reason."""
    part = next(part for part in order if part in reasons)
    more = f" (and {counted(len(reasons) - 1, 'more part')})" if len(reasons) > 1 else ""
    return f"reproduce {name} failed: {part}: {reasons[part]}{more}"


def _measured(todo: list[StudyPart], workers: int) -> Iterator[Outcome[StudyPart, Measurement]]:
    """Outcomes of parts. A single worker is this process itself, in which errors are raised."""
    if workers > 1 and len(todo) > 1:
        yield from run_in_processes(measure_part, todo, workers)
        return
    for part in todo:
        yield Outcome(part, measure_part(part))


def _progress(
    results: StudyResults, part: str, costs: Mapping[str, float], wall_s: Mapping[str, float], workers: int
) -> StudyProgress:
    left = [cost for name, cost in costs.items() if name not in results.parts]
    pace = sum(wall_s.values()) / sum(costs[name] for name in wall_s)  # seconds per cost
    left_s = pace * sum(left) / max(min(workers, len(left)), 1)
    return StudyProgress(results.name, part, len(results.parts), len(costs), left_s)
