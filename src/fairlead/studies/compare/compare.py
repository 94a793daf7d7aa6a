"""Runs every policy on every workload under the same rules, and compares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, filterfalse, repeat

from fairlead import __version__
from fairlead.model.errors import InputError
from fairlead.policies.policy import AnyPolicy, Knows
from fairlead.sim.loops import loop_for
from fairlead.sim.truth import World
from fairlead.studies.compare.answer import (
    ComparedCluster,
    ComparedPolicy,
    ComparedWorkload,
    ComparisonAnswer,
    FailedRun,
)
from fairlead.studies.compare.as_it_was import NAME, has_past
from fairlead.studies.compare.cases import (
    Case,
    common_digest,
    find_record,
    keep_record,
    make_case,
    past_record,
    run_case,
)
from fairlead.studies.compare.run_records import RunRecord
from fairlead.studies.compare.table import METRICS, rows_of, tenants_of
from fairlead.studies.compare.workloads import Workload
from fairlead.studies.policy_lab.plugins import PolicyRef
from fairlead.studies.runs.process_pool import Outcome, attempt
from fairlead.studies.runs.simulate import Setup, check_tenants, doubts, without_impossible
from fairlead.studies.runs.store import Store
from fairlead.traces.formats import Trace

NOT_RUN = "not run, because the budget of CPU time was spent"

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
    audit: bool = False  # also keep envy and sharing incentives of every run
    notes: tuple[str, ...] = ()  # for readers of the result


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
    for policy in request.policies:
        loop_for(policy.load()).check(request.setup.world)
    cases: list[Case] = []
    digests: set[str] = set()
    assumptions: dict[str, None] = dict.fromkeys(request.notes)
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
            cases += [
                make_case(policy, load, seed, setup, common, keep_stays=stays, audit=request.audit)
                for policy in request.policies
            ]
    if len(request.seeds) > 1:
        assumptions[f"seeds {_range(request.seeds)}; the notes above are those of seed {request.seeds[0]}"] = None
    if idle:
        first = f"seed{'s' if len(idle) > 1 else ''} {_range(list(idle))} would repeat an earlier run"
        assumptions[f"{first}, because nothing here is drawn at random; they are not counted"] = None
    return ComparisonPlan(cases, list(assumptions))


def split_by_world(policies: Sequence[PolicyRef], world: World) -> tuple[list[PolicyRef], tuple[str, ...]]:
    """The policies that can be simulated in the world, and a sentence about each of the others."""
    able, left_out = [], []
    for ref in policies:
        try:
            loop_for(ref.load()).check(world)
            able.append(ref)
        except InputError as error:
            left_out.append(f"left out: {error.message.partition(';')[0]}")
    return able, tuple(left_out)


def compare(
    request: Request,
    execute: Executor,
    store: Store | None = None,
    tell: Callable[[int, int], None] | None = None,
    run: Callable[[Case], RunRecord] = run_case,
) -> Comparison:
    """Run a comparison. `tell` receives the number of runs that are done and the number of all runs."""
    return compare_all([request], execute, store, tell, run=run)[0]


def compare_all(
    requests: Sequence[Request],
    execute: Executor,
    store: Store | None = None,
    tell: Callable[[int, int], None] | None = None,
    budget_s: float | None = None,
    run: Callable[[Case], RunRecord] = run_case,
) -> list[Comparison]:
    """Run several comparisons at once. No run starts after those that are not kept have taken `budget_s` of CPU time."""
    plans = [make_plan(request) for request in requests]
    cases = {case.key: case for plan in plans for case in plan.cases}
    done: dict[str, CaseOutcome] = {}
    if store is not None:
        kept = {key: Outcome(case, find_record(store, case)) for key, case in cases.items() if not _stays_here(case)}
        done = {key: outcome for key, outcome in kept.items() if outcome.result is not None}
    found = frozenset(done)
    if tell is not None:
        tell(len(done), len(cases))
    todo = [case for key, case in cases.items() if key not in done]
    budget = CpuBudget(budget_s)
    here = (Outcome(case, *attempt(run, case)) for case in budget.affordable(filter(_stays_here, todo)))
    for outcome in chain(execute(run, budget.affordable(filterfalse(_stays_here, todo))), here):
        if outcome.result is not None:
            budget.spent_s += outcome.result.timings.cpu_s
            if store is not None and not _stays_here(outcome.task):
                keep_record(store, outcome.task, outcome.result)
        done[outcome.task.key] = outcome
        if tell is not None:
            tell(len(done), len(cases))
    for case in todo:
        done.setdefault(case.key, Outcome(case, None, NOT_RUN))
    return [
        _comparison(request, plan, [done[case.key] for case in plan.cases], sum(one.key in found for one in plan.cases))
        for request, plan in zip(requests, plans, strict=True)
    ]


@dataclass
class CpuBudget:
    limit_s: float | None
    spent_s: float = 0.0

    def affordable(self, cases: Iterable[Case]) -> Iterator[Case]:
        """The cases until the budget is spent."""
        for case in cases:
            if self.limit_s is not None and self.spent_s >= self.limit_s:
                return
            yield case


def _stays_here(case: Case) -> bool:
    """Whether the policy is a value of this process: it cannot be sent to others, and its versions look alike."""
    return case.policy.value is not None


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
    past = [past_record(case) for case in _first_of_each_workload(plan.cases) if has_past(case.setup)]
    records = [*(outcome.result for outcome in outcomes if outcome.result is not None), *past]
    failures = [
        FailedRun(one.task.policy.load().name, one.task.load, one.task.seed, one.reason)
        for one in outcomes
        if one.result is None
    ]
    first = outcomes[0].task.setup
    compared = (
        *map(_compared, request.policies, policies, repeat(first)),
        *([_as_it_was(policies[0], first)] if past else []),
    )
    answer = answer_of(
        first,
        compared,
        tuple(request.seeds),
        tuple(request.loads),
        tuple(plan.assumptions),
        records,
        failures,
        done_before,
    )
    return Comparison(answer, first)


def answer_of(
    setup: Setup,
    policies: tuple[ComparedPolicy, ...],
    seeds: tuple[int, ...],
    loads: tuple[float | None, ...],
    assumptions: tuple[str, ...],
    records: Sequence[RunRecord],
    failures: Sequence[FailedRun] = (),
    done_before: int = 0,
) -> ComparisonAnswer:
    """The document about these runs; `setup` is that of the first one."""
    names = [policy.name for policy in policies]
    return ComparisonAnswer(
        version=__version__,
        workload=_workload(setup.trace),
        cluster=ComparedCluster(
            gpus=dict(zip(setup.cluster.types, setup.cluster.capacity.tolist(), strict=True)),
            nodes=len(setup.cluster.nodes),
        ),
        settings=setup.settings,
        world=setup.world,
        restart_s=setup.restart_s,
        tenant_weight=dict(setup.tenant_weight),
        sensing=setup.sensing,
        seeds=seeds,
        loads=loads,
        assumptions=assumptions,
        policies=policies,
        metrics=METRICS,
        rows=tuple(rows_of(names, list(loads), records, failures)),
        tenants=tuple(tenants_of(names, list(loads), records)),
        failures=tuple(failures),
        runs=tuple(records),
        runs_found_done=done_before,
    )


def _first_of_each_workload(cases: Sequence[Case]) -> list[Case]:
    """A case for each workload whose arrivals are those of the trace."""
    return list({(case.load, case.seed): case for case in reversed(cases) if case.load is None}.values())[::-1]


def _as_it_was(policy: AnyPolicy, setup: Setup) -> ComparedPolicy:
    return ComparedPolicy(
        name=NAME,
        summary="what the scheduler of the trace did with these jobs",
        paper="the trace",
        level="-",
        knows=(),
        allowed_to_know=dict.fromkeys(knows_of(policy, setup), "unknown"),
        source="the trace",
        parameters={},
    )


def _workload(trace: Trace) -> ComparedWorkload:
    tenants = len({job.tenant for job in trace.jobs})
    return ComparedWorkload(trace.name, trace.format, trace.sha256, len(trace.jobs), tenants)


def _compared(ref: PolicyRef, policy: AnyPolicy, setup: Setup) -> ComparedPolicy:
    source = "this process" if ref.value is not None else ref.text if ref.text != policy.name else "registry"
    return compared_policy(policy, setup, source)


def compared_policy(policy: AnyPolicy, setup: Setup, source: str) -> ComparedPolicy:
    return ComparedPolicy(
        name=policy.name,
        summary=policy.summary,
        paper=policy.paper,
        level=policy.level,
        knows=tuple(sorted(policy.knows)),
        allowed_to_know=knows_of(policy, setup),
        source=source,
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
