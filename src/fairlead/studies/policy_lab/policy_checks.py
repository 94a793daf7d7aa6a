"""Checks the rules that every policy must obey: sound runs, no hidden knowledge, and the promises that it declares.

Each check takes a small world and raises `BrokenRuleError` if the policy breaks it. `check_policy` tries many worlds and
makes the first one that fails as small as possible.
"""

from __future__ import annotations

import json
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from fairlead.policies.policy import AnyPolicy, Knows
from fairlead.rounds.state import State
from fairlead.sim.loops import loop_for
from fairlead.studies.policy_lab.fairness_checks import check_promises
from fairlead.studies.policy_lab.journal_checker import BadJournalError, check_journal
from fairlead.studies.policy_lab.policy_worlds import describe, make_world, smaller
from fairlead.studies.runs.process_pool import reason_of
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.runs.summary import summarise

MOST_DECISIONS = 3_000  # of a small world; a policy that works makes a few hundred
MOST_SHRINKS = 150


class BrokenRuleError(AssertionError):
    """The policy does what no policy may do."""


@dataclass(frozen=True, slots=True)
class CounterExample:
    rule: str
    example: int
    complaint: str
    world: str


def check_policy(
    policy: AnyPolicy, examples: range, tell: Callable[[int], None] | None = None
) -> Iterator[CounterExample | None]:
    """One result per example, None if it passed; the first failure is the last result."""
    for done, example in enumerate(examples):
        if tell is not None:
            tell(done)
        for rule, check in rules_for(policy).items():
            first = _try(check, make_world(policy, example))
            if first is not None:
                small, complaint = _shrink(check, make_world(policy, example), first)
                yield CounterExample(rule, example, complaint, describe(small))
                return
        broken = check_promises(policy, example)
        if broken is not None:
            yield CounterExample("the promises that it declares", example, broken.complaint, broken.world)
            return
        yield None


def rules_for(policy: AnyPolicy) -> dict[str, Callable[[Setup], None]]:
    """The rules that apply to a policy, by their descriptions."""
    rules: dict[str, Callable[[Setup], None]] = {
        "every run is sound and every job finishes": sound,
        "the same world gives the same run": deterministic,
    }
    if Knows.LENGTHS not in policy.knows:
        rules["lengths that it does not declare to know change nothing"] = blind_to_lengths
    if Knows.ARRIVALS not in policy.knows:
        rules["jobs that have not arrived yet change nothing"] = blind_to_arrivals
    if loop_for(policy).places:
        rules["hidden speeds of servers change nothing before they can be observed"] = blind_to_servers
    return rules


def sound(setup: Setup) -> None:
    """Gangs are whole, no GPU is used twice, no job is on a node that is down, work is conserved, no job starves."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        state = _run(setup, path)
        try:
            check_journal(path)
        except BadJournalError as error:
            raise BrokenRuleError(str(error)) from None
    left = len(setup.trace.jobs) - summarise(state).jobs_finished
    _need(left == 0, f"{left} of {len(setup.trace.jobs)} jobs never finish")


def deterministic(setup: Setup) -> None:
    first, again = _journal(setup), _journal(setup)
    for number, (one, other) in enumerate(zip(first, again, strict=False), start=1):
        _need(one == other, f"line {number} of the journal is {one} in one run and {other} in the next")
    _need(len(first) == len(again), "two runs of one world differ in length")


def blind_to_lengths(setup: Setup) -> None:
    """Until a job ends, its length makes no difference."""
    jobs = tuple(
        replace(job, steps=job.steps * (3.0 if i % 2 else 1.5)) for i, job in enumerate(setup.trace.jobs) if job.steps
    )
    other = replace(setup, trace=replace(setup.trace, jobs=jobs))
    _same_choices(setup, other, "job lengths", lambda records: _first(records, "finished"))


def blind_to_arrivals(setup: Setup) -> None:
    """Until the last job arrives, it makes no difference."""
    jobs = setup.trace.jobs
    last_s = jobs[-1].arrival_s if jobs else 0.0
    fewer = tuple(job for job in jobs if job.arrival_s < last_s)
    if not fewer:
        return
    weight = {name: w for name, w in setup.tenant_weight.items() if name in {job.tenant for job in fewer}}
    other = replace(setup, trace=replace(setup.trace, jobs=fewer), tenant_weight=weight)
    calm = replace(setup.world, length_error=0.0)  # errors are drawn for all jobs at once
    _same_choices(replace(setup, world=calm), replace(other, world=calm), "future arrivals", lambda _: last_s)


def blind_to_servers(setup: Setup) -> None:
    """The first decision cannot know the speeds of servers; without lengths, they are unknown until a job ends."""
    slow = replace(setup, world=replace(setup.world, server_factor=(0.6, 1.1), mtbf_s=0.0, seed=setup.world.seed + 1))
    plain = replace(setup, world=replace(setup.world, server_factor=(1.0, 1.0), mtbf_s=0.0, seed=setup.world.seed + 1))
    shows = "started" if Knows.LENGTHS in setup.policy.knows else "finished"
    _same_choices(
        plain, slow, "hidden speeds of servers", lambda records: _first(records, shows), inclusive=shows == "started"
    )


def _same_choices(
    one: Setup, other: Setup, what: str, until: Callable[[list[dict[str, Any]]], float], *, inclusive: bool = False
) -> None:
    first, second = ([json.loads(line) for line in _journal(setup)[1:]] for setup in (one, other))
    end_s = min(until(first), until(second))
    mine, theirs = (_choices(records, end_s, one, inclusive=inclusive) for records in (first, second))
    for a, b in zip(mine, theirs, strict=False):
        _need(
            a == b,
            f"with other {what} it decides differently at {a[0]:g} s, before it could have observed them: {a} and {b}",
        )
    _need(len(mine) == len(theirs), f"with other {what} it decides more often before {end_s:g} s")


def _choices(records: list[dict[str, Any]], end_s: float, setup: Setup, *, inclusive: bool) -> list[Any]:
    """The choices before that time. Service by tasks is recorded as averages over a round, which must have ended."""
    chosen = []
    for record in records:
        time_s = record["time_s"]
        if record["event"] == "decision" and (time_s < end_s or (inclusive and time_s == end_s)):
            if record["stop"] or record["start"]:
                chosen.append((time_s, record["stop"], record["start"]))
        elif record["event"] == "served" and time_s + setup.settings.round_s <= end_s:
            chosen.append((time_s, record["jobs"], record["gpus"]))
    return chosen


def _first(records: list[dict[str, Any]], event: str) -> float:
    return float(next((record["time_s"] for record in records if record["event"] == event), float("inf")))


def _journal(setup: Setup) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        _run(setup, path)
        return path.read_text(encoding="utf-8").splitlines()


def _run(setup: Setup, journal: Path) -> State:
    decisions = count(1)

    def tick(state: State) -> None:
        _need(
            next(decisions) < MOST_DECISIONS,
            f"at {state.now_s:g} s still {state.active} of {state.jobs} jobs are active",
        )

    return simulate(setup, journal, tick).state


def _try(check: Callable[[Setup], None], setup: Setup) -> str | None:
    """What went wrong, or None; any exception of a policy counts."""
    try:
        check(setup)
    except BrokenRuleError as error:
        return str(error)
    except Exception as error:
        return _named(reason_of(error), setup) + _hint(error, setup.policy)
    return None


def _named(complaint: str, setup: Setup) -> str:
    """The complaint with the names of jobs and nodes, which decisions identify by number."""
    names = {"job": [job.id for job in setup.trace.jobs], "node": setup.cluster.nodes}
    return re.sub(r"\b(job|node) (\d+)\b", lambda match: f"{match[1]} {names[match[1]][int(match[2])]}", complaint)


def _hint(error: Exception, policy: AnyPolicy) -> str:
    lines = [frame.line or "" for frame in traceback.extract_tb(error.__traceback__)]
    hidden = any(re.search(r"\.(total|done)\b", line) for line in lines[-2:])
    if Knows.LENGTHS in policy.knows or "NoneType" not in str(error) or not hidden:
        return ""
    return "; lengths are hidden: declare knows=frozenset({Knows.LENGTHS}) to see view.total and view.done"


def _shrink(check: Callable[[Setup], None], setup: Setup, complaint: str) -> tuple[Setup, str]:
    """The smallest failing world that can be reached by single simplifications."""
    tries = count()
    going = True
    while going:
        going = False
        for other in smaller(setup):
            if next(tries) >= MOST_SHRINKS:
                return setup, complaint
            other_complaint = _try(check, other) if other.trace.jobs else None
            if other_complaint is not None:
                setup, complaint, going = other, other_complaint, True
                break
    return setup, complaint


def _need(holds: bool, complaint: str) -> None:
    if not holds:
        raise BrokenRuleError(complaint)
