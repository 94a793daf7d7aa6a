"""Runs every policy on every workload under the same rules, and compares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from fairlead import __version__
from fairlead.model.errors import InputError
from fairlead.policies.policy import AnyPolicy, Knows
from fairlead.studies.compare.answer import (
    ComparedCluster,
    ComparedPolicy,
    ComparedWorkload,
    ComparisonAnswer,
    FailedRun,
)
from fairlead.studies.compare.cases import Case, common_digest, find_record, keep_record, make_case, run_case
from fairlead.studies.compare.run_records import RunRecord
from fairlead.studies.compare.table import METRICS, rows_of, tenants_of
from fairlead.studies.compare.workloads import Workload
from fairlead.studies.policy_lab.plugins import PolicyRef
from fairlead.studies.runs.process_pool import Outcome
from fairlead.studies.runs.simulate import Setup, check_tenants, doubts, without_impossible
from fairlead.studies.runs.store import Store
from fairlead.traces.formats import Trace

CaseOutcome = Outcome[Case, RunRecord]
Executor = Callable[[Callable[[Case], RunRecord], Iterable[Case]], Iterator[CaseOutcome]]


@dataclass(frozen=True)
class Request:
    """What to compare. `setup` is the same for all runs except for its trace and its seed."""

    policies: Sequence[PolicyRef]
    seeds: Sequence[int]
    loads: Sequence[float | None]
    workload: Workload
    setup: Setup
    skip_impossible: bool = False


@dataclass(frozen=True)
class ComparisonPlan:
    cases: list[Case]
    assumptions: list[str]


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison, and the set-up of its first run."""

    answer: ComparisonAnswer
    setup: Setup


def make_plan(request: Request) -> ComparisonPlan:
    """The plan of all runs. A seed that changes nothing is not another observation, so it is not run again."""
    _check_names(request.policies)
    cases: list[Case] = []
    digests: set[str] = set()
    assumptions: dict[str, None] = {}
    idle: dict[int, None] = {}  # seeds that change nothing
    for load in request.loads:
        for seed in request.seeds:
            setup, notes = _setup(request, load, seed)
            if seed == request.seeds[0]:
                assumptions.update(dict.fromkeys(notes))
            common = common_digest(setup)
            if common in digests:
                idle[seed] = None
                continue
            digests.add(common)
            stays = load == request.loads[-1] and seed == request.seeds[0]
            cases += [make_case(policy, load, seed, setup, common, keep_stays=stays) for policy in request.policies]
    if len(request.seeds) > 1:
        assumptions[f"seeds {_range(request.seeds)}; the notes above are those of seed {request.seeds[0]}"] = None
    if idle:
        first = f"seed{'s' if len(idle) > 1 else ''} {_range(list(idle))} would repeat an earlier run"
        assumptions[f"{first}, because nothing here is drawn at random; they are not counted"] = None
    return ComparisonPlan(cases, list(assumptions))


def compare(
    request: Request,
    execute: Executor,
    store: Store | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Run a comparison. `tell` receives the number of runs that are done and the number of all runs."""
    plan = make_plan(request)
    done: dict[str, CaseOutcome] = {}
    if store is not None:
        kept = {case.key: Outcome(case, find_record(store, case)) for case in plan.cases}
        done = {key: outcome for key, outcome in kept.items() if outcome.result is not None}
    done_before = len(done)
    if tell is not None:
        tell(len(done), len(plan.cases))
    for outcome in execute(run_case, [case for case in plan.cases if case.key not in done]):
        if outcome.result is not None and store is not None:
            keep_record(store, outcome.task, outcome.result)
        done[outcome.task.key] = outcome
        if tell is not None:
            tell(len(done), len(plan.cases))
    return _comparison(request, plan, [done[case.key] for case in plan.cases], done_before)


def knows_of(policy: AnyPolicy, setup: Setup) -> dict[str, str]:
    """What a policy may know, in words for the report."""
    learns = "no" if setup.sensing == "table" else f"learnt from running jobs ({setup.sensing})"
    hidden = {name for name in Knows if name not in policy.knows}
    lengths = "no" if Knows.LENGTHS in hidden else "yes, as declared" if setup.world.length_error else "yes"
    return {
        "speeds by type": "yes",
        "job lengths": lengths,
        "future arrivals": "no" if Knows.ARRIVALS in hidden else "yes",
        "speeds of single servers": learns,
    }


def _comparison(request: Request, plan: ComparisonPlan, outcomes: list[CaseOutcome], done_before: int) -> Comparison:
    policies = [ref.load() for ref in request.policies]
    names = [policy.name for policy in policies]
    records = [outcome.result for outcome in outcomes if outcome.result is not None]
    failures = [
        FailedRun(one.task.policy.load().name, one.task.load, one.task.seed, one.reason)
        for one in outcomes
        if one.result is None
    ]
    first = outcomes[0].task.setup
    answer = ComparisonAnswer(
        version=__version__,
        workload=_workload(first.trace),
        cluster=ComparedCluster(
            gpus=dict(zip(first.cluster.types, first.cluster.capacity.tolist(), strict=True)),
            nodes=len(first.cluster.nodes),
        ),
        settings=first.settings,
        world=first.world,
        restart_s=first.restart_s,
        tenant_weight=dict(first.tenant_weight),
        sensing=first.sensing,
        seeds=tuple(request.seeds),
        loads=tuple(request.loads),
        assumptions=tuple(plan.assumptions),
        policies=tuple(map(_compared, request.policies, policies, repeat(first))),
        metrics=METRICS,
        rows=tuple(rows_of(names, list(request.loads), records, failures)),
        tenants=tuple(tenants_of(names, list(request.loads), records)),
        failures=tuple(failures),
        runs=tuple(records),
        runs_found_done=done_before,
    )
    return Comparison(answer, first)


def _workload(trace: Trace) -> ComparedWorkload:
    tenants = len({job.tenant for job in trace.jobs})
    return ComparedWorkload(trace.name, trace.format, trace.sha256, len(trace.jobs), tenants)


def _compared(ref: PolicyRef, policy: AnyPolicy, setup: Setup) -> ComparedPolicy:
    return ComparedPolicy(
        name=policy.name,
        summary=policy.summary,
        paper=policy.paper,
        level=policy.level,
        knows=tuple(sorted(policy.knows)),
        allowed_to_know=knows_of(policy, setup),
        source=ref.text if ref.text != policy.name else "registry",
        parameters=policy.parameters,
    )


def _setup(request: Request, load: float | None, seed: int) -> tuple[Setup, tuple[str, ...]]:
    world = replace(request.setup.world, seed=seed)
    setup = replace(request.setup, trace=request.workload(load, seed), world=world)
    check_tenants(setup)
    left, skipped = without_impossible(setup, skip=request.skip_impossible)
    if not left.jobs:
        raise InputError(f"{setup.trace.name} has no jobs to run; there is nothing to compare")
    notes = (*left.notes, *doubts(replace(setup, trace=left)))
    notes = notes if not skipped else (*notes, f"left out {skipped} jobs that can never run on this cluster")
    return replace(setup, trace=left), notes


def _check_names(policies: Sequence[PolicyRef]) -> None:
    texts: dict[str, str] = {}
    for ref in policies:
        name = ref.load().name
        if name in texts:
            raise InputError(f'two policies are called "{name}" ({texts[name]} and {ref.text}); rename one of them')
        texts[name] = ref.text


def _range(numbers: Sequence[int]) -> str:
    whole = len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]}..{numbers[-1]}" if whole else ", ".join(map(str, numbers))
