"""The four studies by name, one at a time or all of them in parallel processes, with results that are kept part by part."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from fairlead.model.errors import FairleadError
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
from fairlead.studies.papers.results import NAMES, Found, Results, new

# What runs an experiment, and what puts it beside its paper.
STUDIES: dict[str, tuple[Any, Any]] = {
    "oef": (oef, oef_claims),
    "hare": (hare, hare_claims),
    "fft": (fft, fft_claims),
    "hops": (hops, hops_claims),
}
assert tuple(STUDIES) == NAMES
LONGEST_FIRST = ("hops", "hare", "fft", "oef")


@dataclass(frozen=True)
class Progress:
    """After a part. `left_s` is how long the study will still take, by the pace so far."""

    study: str
    part: str
    done: int
    of: int
    left_s: float


@dataclass(frozen=True)
class Measured:
    part: str
    numbers: Any
    cpu_s: float
    wall_s: float


Tell = Callable[[Progress], None]


def study_of(found: Found) -> Study:
    """Its numbers beside its paper's."""
    _, claims = STUDIES[found.name]
    beside: Study = claims.study(found.scale, found.parts)
    return replace(beside, made=found.made)


def scale_of(name: str, quick: bool) -> Any:
    experiment, _ = STUDIES[name]
    return experiment.QUICK if quick else experiment.FULL


def run_study(name: str, scale: Any, tell: Tell, table: Profile | None = None) -> Found:
    """Calls `tell` after every part; `table` is a further table of speeds for OEF."""
    found = new(name, scale)
    steps = _steps(found, len(_costs(name, scale)) + (table is not None), tell)
    for one in _measured(name, scale, found.parts, table):
        found = found.with_part(one.part, one.numbers, one.cpu_s)
        steps(one)
    return found


def run_studies(
    scales: Mapping[str, Any],
    workers: int,
    tell: Tell,
    results: Results | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Found]:
    """All of `scales` by name, in the order of the page.

    With `results`, parts that are there for the same scale and code are not measured again, and every part is written
    when it is done. `say` is told what is there and cannot be used. With several workers a study that fails does not
    stop the others.
    """
    found: dict[str, Found] = {}
    for name, scale in scales.items():
        found[name], remark = results.find(name, scale, label(name, scale)) if results else (new(name, scale), "")
        if remark:
            say(f"{name}: {remark}")
    todo = [name for name in LONGEST_FIRST if name in scales and not _complete(found[name])]
    steps = {name: _steps(found[name], len(_costs(name, scales[name])), tell) for name in todo}
    failed: dict[str, str] = {}
    for name, one in _in_turn([found[name] for name in todo], workers, failed):
        found[name] = found[name].with_part(one.part, one.numbers, one.cpu_s)
        if results:
            results.keep(found[name], label(name, scales[name]))
        steps[name](one)
    if failed:
        raise FairleadError("; ".join(f"reproduce {name} failed: {reason}" for name, reason in failed.items()))
    return [found[name] for name in NAMES if name in scales]


def label(name: str, scale: Any) -> str:
    """A scale in the name of a file: results of two scales do not overwrite each other."""
    known = {"full": scale_of(name, False), "quick": scale_of(name, True)}
    digest = hashlib.sha256(json.dumps(asdict(scale), sort_keys=True).encode()).hexdigest()[:8]
    return next((word for word, one in known.items() if one == scale), digest)


# ---- one study -----------------------------------------------------------------------------------------------------


def _measured(name: str, scale: Any, kept: Mapping[str, Any], table: Profile | None = None) -> Iterator[Measured]:
    """Parts that are not kept yet; a study gives each with the function that measures it."""
    experiment, _ = STUDIES[name]
    for part, measure in experiment.reproduce(scale, table) if table else experiment.reproduce(scale):
        if part not in kept:
            cpu_s, wall_s = time.process_time(), time.monotonic()
            numbers = measure()
            yield Measured(part, numbers, time.process_time() - cpu_s, time.monotonic() - wall_s)


def _costs(name: str, scale: Any) -> list[float]:
    """Of its parts in order, relative to each other; equal ones where nobody has measured them."""
    experiment, _ = STUDIES[name]
    return COSTS[name](scale) if name in COSTS else [1.0] * experiment.parts(scale)


def _complete(found: Found) -> bool:
    return len(found.parts) >= len(_costs(found.name, found.scale))


def _steps(found: Found, total: int, tell: Tell) -> Callable[[Measured], None]:
    """Counts parts and estimates the time left from what those that were measured now have taken."""
    costs = _costs(found.name, found.scale)
    costs += [1.0] * (total - len(costs))
    first = done = len(found.parts)
    spent_s = 0.0

    def step(one: Measured) -> None:
        nonlocal done, spent_s
        done += 1
        spent_s += one.wall_s
        tell(Progress(found.name, one.part, done, total, spent_s * sum(costs[done:]) / sum(costs[first:done])))

    return step


# ---- processes -----------------------------------------------------------------------------------------------------


def _in_turn(todo: list[Found], workers: int, failed: dict[str, str]) -> Iterator[tuple[str, Measured]]:
    """(study, part) as they come; why a study ended early goes into `failed`.

    One worker is this process itself. Leaving early ends the processes.
    """
    if workers <= 1 or len(todo) <= 1:
        for one in todo:
            yield from ((one.name, part) for part in _measured(one.name, one.scale, one.parts))
        return
    context = multiprocessing.get_context("spawn")  # shares no solver and no thread with us
    waiting = list(todo)
    busy: dict[Any, str] = {}  # study by its pipe
    with ExitStack() as ends:
        while waiting or busy:
            while waiting and len(busy) < workers:
                one = waiting.pop(0)
                ours, theirs = context.Pipe()
                process = context.Process(target=_apart, args=(theirs, one.name, one.scale, one.parts), daemon=True)
                process.start()
                ends.callback(process.kill)
                theirs.close()
                busy[ours] = one.name
            for ready in wait(list(busy)):
                pipe: Any = ready
                try:
                    said = pipe.recv()
                except EOFError:
                    said = "its process died"
                if isinstance(said, Measured):
                    yield busy[pipe], said
                    continue
                name = busy.pop(pipe)
                pipe.close()
                if said is not None:
                    failed[name] = said


def _apart(pipe: Connection, name: str, scale: Any, kept: Mapping[str, Any]) -> None:
    """Sends every part, then None, or why there is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        for one in _measured(name, scale, kept):
            pipe.send(one)
        pipe.send(None)
    except Exception as error:  # the other studies go on
        pipe.send(f"{type(error).__name__}: {error}")


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
