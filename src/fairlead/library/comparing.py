"""`fairlead.compare`: many policies on the same workloads under the same rules, and their tables over seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.library.comparison import ComparedSetting, PolicyComparison
from fairlead.library.grids import JOBS, Labels, grid_of
from fairlead.library.own_policies import AnyReference, reference_of, split_policies
from fairlead.library.reading import File, Reading, build, known, read_cluster
from fairlead.library.rules import Duration, WorldRules
from fairlead.library.simulating import SimulationOptions, refuse_reading
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.units import positive_duration
from fairlead.model.words import choose, parse_pairs
from fairlead.policies import REGISTRY
from fairlead.policies.policy import Knows
from fairlead.studies.compare import compare as study
from fairlead.studies.compare.compare import Executor, Request
from fairlead.studies.compare.fillings import BY_REFERENCE, filled_in
from fairlead.studies.compare.workloads import Generated, Workload, from_file, from_generator, from_trace
from fairlead.studies.policy_lab.plugins import PolicyRef
from fairlead.studies.runs.store import Store, default_folder
from fairlead.traces.formats import Trace

if TYPE_CHECKING:
    from typing import Unpack

ALL = "all"  # every policy that needs no knowledge of the future
MOST_SEEDS = 1000
EXECUTORS = ("processes", "ray")
GENERATE = ("arrivals", "durations", "load", "tenants", "tenant_skew")


def compare(
    cluster: Cluster | File | Sequence[Cluster | File],
    policies: str | Sequence[AnyReference],
    *,
    trace: Trace | File | Sequence[Trace | File] | None = None,
    generate: str | Mapping[str, Any] | None = None,
    seeds: str | int | Sequence[int] = "0",
    loads: str | Sequence[float] | None = None,
    jobs: int | None = None,
    audit: bool = False,
    fillings: int | None = None,
    fill_types: str | Sequence[str] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    budget: Duration | None = None,
    state: File | None = None,
    fresh: bool = False,
    workers: int | None = None,
    executor: str = "processes",
    ray_address: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[SimulationOptions],
) -> PolicyComparison:
    """Run every policy on the same workloads under the same rules, and compare them seed by seed.

    `policies` are names, `FILE.py:NAME`, either with parameters (`fft:kappa=2`), `all`, or policies; as one text they are
    separated by commas. Several clusters or traces are compared one after the other, each with all policies. The workload
    is a trace, or generated: `"defaults"`, or options of `fairlead.generate` such as `{"tenants": 4}`. `seeds` are `"0..9"`,
    a list or one number. `audit` adds envy and sharing incentives; runs that were kept without it run again. The options
    have the names and defaults of `fairlead compare`. `progress` receives the number of finished runs and of all runs.

    `vary` repeats all of it for every combination of values: `{"round": ["1m", "6m"], "tenants": [2, 20]}`; its names are
    options, `jobs`, and what `generate` takes. After a CPU time of `budget` no further run starts.

    `fillings` fills in what a trace file lacks in that many ways (seeds 0, 1, ...), and `fill_types` assumes in turn that its
    durations were measured on each of these GPU types; `conclusions` then says what holds however it is filled in.

    Finished runs are kept in `state` and are not run again; runs of policies that are values are not kept, and run in this
    process, while the others run in `workers` processes.
    """
    given = known(options, Reading, WorldRules)
    traces, clusters = _several(trace), _several(cluster)
    if any(isinstance(one, Trace) for one in traces):
        refuse_reading(given)
    if (generate is None) == (not traces):
        raise InputError("give either --trace FILE or --generate SPEC (for example --generate defaults)")
    run_all = find_executor(executor, workers or os.cpu_count() or 1, ray_address)
    budget_s = None if budget is None else positive_duration("--budget", budget)
    refuse_repeats("--trace", [_label_of_trace(one) for one in traces])
    refuse_repeats("--cluster", [_label_of_cluster(one) for one in clusters])
    from_all, named = policies_of(policies)
    if fillings is not None or fill_types is not None:
        seeds, vary = ways_to_fill(fillings, fill_types, seeds, traces, {**(vary or {})})
    pairs = None if generate is None else generator_options(generate)
    fixed = {**(pairs or {}), **given, JOBS: jobs}
    requests: list[Request] = []
    labels: list[Labels] = []
    reads = any(not isinstance(one, Trace) for one in traces)
    for point in grid_of(vary or {}, GENERATE if pairs is not None else (), fixed, reads=reads):
        values = {**given, **point.options}
        reading, rules = build(Reading, values), build(WorldRules, values)
        rules.refuse_task_options(policy.load() for policy in (*from_all, *named))
        profile, spec = reading.profile(), None if pairs is None else generator_of({**pairs, **point.generator})
        for one, other in product(traces or [None], clusters):
            hardware = read_cluster(other, alias=reading.alias)
            no_policy: Any = None  # each run has its own policy
            setup = rules.setup(hardware, Trace((), "", ""), profile, no_policy, aliases=reading.aliases())
            able, left_out = study.split_by_world(from_all, setup.world)
            workload = _workload(one, spec, reading, hardware, point.jobs or jobs)
            gaps = gaps_of(workload, one) if fillings is not None else []
            request = Request(
                policies=[*able, *named],
                seeds=seeds_of(seeds),
                loads=loads_of(loads),
                workload=workload,
                setup=setup,
                skip_impossible=rules.skip_impossible,
                audit=audit,
                notes=(*left_out, *gaps),
            )
            requests.append(request)
            labels.append({"trace": _label_of_trace(one), "cluster": _label_of_cluster(other), **point.labels})
    done = study.compare_all(requests, run_all, store_of(state, fresh=fresh), progress, budget_s)
    settings = tuple(map(ComparedSetting, labels, done))
    return PolicyComparison(settings, fills=fillings is not None or fill_types is not None)


def _workload(
    trace: Trace | File | None, spec: Generated | None, reading: Reading, cluster: Cluster, jobs: int | None
) -> Workload:
    profile = reading.profile()
    if trace is None:
        assert spec is not None, "there is a trace or a generator"
        return from_generator(profile, cluster, jobs, spec)
    if isinstance(trace, Trace):
        return from_trace(trace, profile, cluster, jobs)
    options = {"format": reading.trace_format, **reading.choices()}
    return from_file(str(trace), profile, cluster, jobs, options)


def ways_to_fill(
    fillings: int | None,
    types: str | Sequence[str] | None,
    seeds: str | int | Sequence[int],
    traces: Sequence[Trace | File],
    vary: dict[str, Sequence[Any]],
) -> tuple[str | int | Sequence[int], dict[str, Sequence[Any]]]:
    """The seeds, and what is varied: every combination is a way to fill in what the traces lack."""
    if not traces or any(isinstance(one, Trace) for one in traces):
        raise InputError("--fillings and --fill-types fill in what a trace file lacks; name the file with --trace")
    if fillings is not None:
        if str(seeds) != "0":
            raise InputError("--fillings chooses the seeds itself; leave out --seeds or --fillings")
        if not 1 <= fillings <= MOST_SEEDS:
            raise InputError(f"--fillings is {fillings}; wanted a whole number from 1 to {MOST_SEEDS}")
        seeds = f"0..{fillings - 1}"
    if types is not None:
        vary["reference"] = types.split(",") if isinstance(types, str) else list(types)
    return seeds, vary


def gaps_of(workload: Workload, trace: File) -> list[str]:
    """What is filled in differently by each seed; refuses a trace that has nothing of that kind."""
    gaps = [gap for gap in filled_in(workload(None, 0)) if not gap.startswith(BY_REFERENCE)]
    if not gaps:
        raise InputError(
            f"--fillings: {trace} names the model of every job, and no tenants are drawn, so there is one way to read it; "
            "leave the option out"
        )
    return [f"filled in by the seed, because the trace lacks it: {', '.join(gaps)}"]


def find_executor(name: str, workers: int, address: str | None) -> Executor:
    if choose("--executor", name, EXECUTORS) == "processes":
        from fairlead.studies.runs.process_pool import run_in_processes

        return partial(run_in_processes, workers=workers)
    from fairlead.studies.runs.ray_pool import check_ray, run_on_ray

    check_ray()
    return partial(run_on_ray, address=address)


def store_of(state: File | None, *, fresh: bool) -> Store:
    return Store(Path(state) if state else default_folder("compare"), "--state", fresh)


def policies_of(policies: str | Sequence[AnyReference]) -> tuple[list[PolicyRef], list[PolicyRef]]:
    """(the policies that `all` stands for, those that are named): of the first, the world may leave some out."""
    wanted: list[AnyReference] = [*(split_policies(policies) if isinstance(policies, str) else policies)]
    if not wanted:
        raise InputError("--policies names no policy; give names such as fifo,gavel,oef-coop, or all")
    named = [reference_of(one) for one in wanted if one != ALL]
    if ALL not in wanted:
        return [], named
    own = {ref.load().name for ref in named}
    names = [policy.name for policy in REGISTRY.values() if Knows.ARRIVALS not in policy.knows]
    return [reference_of(name) for name in names if name not in own], named


def seeds_of(seeds: str | int | Sequence[int]) -> list[int]:
    """The seeds of `0..9`, `0,3,5`, one number or a list."""
    text = str(seeds) if isinstance(seeds, str | int) else ",".join(map(str, seeds))
    low, dots, high = text.partition("..")
    try:
        numbers = list(range(int(low), int(high) + 1)) if dots else [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or len(numbers) > MOST_SEEDS or len(set(numbers)) < len(numbers):
        raise InputError(f'--seeds "{text}": expected 0..9 or 0,3,5, at most {MOST_SEEDS} different whole numbers')
    return numbers


def loads_of(loads: str | Sequence[float] | None) -> list[float | None]:
    if loads is None:
        return [None]
    text = loads if isinstance(loads, str) else ",".join(map(str, loads))
    try:
        numbers: list[float | None] = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(load is not None and 0 < load <= 1000 for load in numbers) or _repeats(numbers):
        raise InputError(f'--loads "{text}": expected different numbers above 0, such as 0.6,0.8,1.0')
    return numbers


def generator_options(spec: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of `--generate`: `defaults`, NAME=VALUE,... or a mapping."""
    if spec == "defaults":
        return {}
    return parse_pairs(spec.split(","), "--generate", "tenants=5,load=1.5") if isinstance(spec, str) else spec


def generator_of(pairs: Mapping[str, Any]) -> Generated:
    options: dict[str, Any] = {}
    for name, value in pairs.items():
        choose("--generate", name, GENERATE)
        try:
            options[name] = int(value) if name == "tenants" else value if name in GENERATE[:2] else float(value)
        except (TypeError, ValueError):
            raise InputError(f'--generate {name}: "{value}" is not a number') from None
    return Generated(options.pop("load", None), options)


def refuse_repeats(option: str, labels: Sequence[str]) -> None:
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise InputError(f'{option} "{twice}" appears twice; name each once')


def _repeats(values: Sequence[Any]) -> bool:
    return len(set(values)) < len(values)


def _several(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _label_of_cluster(cluster: Cluster | File) -> str:
    if not isinstance(cluster, Cluster):
        return str(cluster)
    return ",".join(f"{name}:{gpus}" for name, gpus in zip(cluster.types, cluster.capacity.tolist(), strict=True))


def _label_of_trace(trace: Trace | File | None) -> str:
    if trace is None:
        return "generated"
    return trace.name if isinstance(trace, Trace) else str(trace)
