"""`fairlead plan`: which GPUs to buy or retire next, from simulated futures and from what a GPU is worth."""

from __future__ import annotations

import csv
import os
import re
import textwrap
from collections.abc import Callable
from functools import cache, partial
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import Importing, parse_parameters, spread
from fairlead.cli.output import Format, Output, print_json, print_lines, print_wrapped_table, show_progress
from fairlead.cli.world import WorldOptions
from fairlead.library.rules import numbers_of
from fairlead.model.errors import InputError
from fairlead.model.units import format_number, positive_duration
from fairlead.model.words import choose, did_you_mean

if TYPE_CHECKING:
    from fairlead.model.cluster import Cluster as Hardware
    from fairlead.studies.planning.fleets import FleetPlan, Market, Offer
    from fairlead.studies.planning.futures import FutureTask
    from fairlead.studies.planning.plan import Goal, PlanResult, PlanRow
    from fairlead.studies.what_if.figures import Ranged

_UNITS = ((300.0, 1.0, "s"), (10_800.0, 60.0, "min"), (432_000.0, 3600.0, "h"), (0.0, 86_400.0, "d"))
POLICY = "oef-coop"  # as the service's default


@spread
def plan(
    *,
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            help="Money, in the unit of the prices; without prices `4nodes` or `32gpus`.",
            metavar="MONEY|Nnodes|Ngpus",
        ),
    ],
    price: Annotated[
        list[str] | None,
        typer.Option("--price", help="Price of one GPU, its part of the node included.", metavar="TYPE=MONEY"),
    ] = None,
    prices: Annotated[
        str | None,
        typer.Option("--prices", help="Prices from a CSV file: gpu, price, and perhaps resale.", metavar="FILE"),
    ] = None,
    resale: Annotated[
        list[str] | None,
        typer.Option("--resale", help="What a retired GPU of a type brings in.", metavar="TYPE=MONEY"),
    ] = None,
    buy: Annotated[
        list[str] | None,
        typer.Option(
            "--buy",
            help="A node that can be bought (default: each type with a price, in nodes as the cluster has them).",
            metavar="[GPUSx]TYPE",
        ),
    ] = None,
    retire: Annotated[bool, typer.Option(help="Also consider the cluster without each of its types.")] = True,
    trace: Annotated[
        str | None,
        typer.Option("--trace", help="Recent jobs; the future is like them. Needs --cluster.", metavar="FILE"),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Cluster file, or GPUs by type: v100:36,p100:36x8.", metavar="FILE|TYPES"),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", help="Begin from here instead (default: the running service).", metavar="FILE[@TIME]|DIR"
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", help=f"The policy that decides (default: the origin's, or {POLICY}).", metavar="NAME"),
    ] = None,
    param: Annotated[list[str] | None, typer.Option(help="Parameter of the policy.", metavar="NAME=VALUE")] = None,
    goal: Annotated[
        str,
        typer.Option(
            "--goal",
            help="What should fall: mean JCT, mean wait, slowdown of the worst tenant.",
            metavar="jct|wait|worst",
        ),
    ] = "jct",
    growth: Annotated[
        float, typer.Option("--growth", help="Jobs arrive this many times as often.", min=0.01, max=100)
    ] = 1.0,
    horizon: Annotated[
        str, typer.Option(help="With --from or a service: how far to look ahead.", metavar="DURATION")
    ] = "3d",
    lot: Annotated[int | None, typer.Option("--lot", help="Nodes that the search buys in one step.", min=1)] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=500, help="Futures for the search, and as many for the answer.")
    ] = 6,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Only the first N jobs of the trace.", min=2)] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes (default: one per core).", min=1, max=1024)
    ] = None,
    importing: Importing,
    rules: WorldOptions,
    output: Output = Format.table,
) -> None:
    """Find out which GPUs to buy or retire next, within a budget, from simulated futures."""
    from fairlead.studies.planning.plan import GOALS, PlanRequest, make_capacity_plan
    from fairlead.studies.planning.wording import plan_to_json
    from fairlead.studies.runs.process_pool import ProcessPool

    chosen = GOALS[choose("--goal", goal, GOALS)]
    by_gpu = {**({} if prices is None else _read_prices(prices, "price")), **numbers_of(price, "--price")}
    back = {**({} if prices is None else _read_prices(prices, "resale")), **numbers_of(resale, "--resale")}
    if trace is not None:
        if from_ is not None:
            raise InputError("--trace and --from are two ways to begin; leave one of them out")
        if cluster is None:
            raise InputError("--cluster: missing; a trace needs the cluster on which its jobs run")
        make_task = partial(_trace_tasks, trace, cluster, policy, param, growth, jobs, importing, rules)
    else:
        if cluster is not None or jobs is not None:
            raise InputError(
                "--cluster and --jobs need --trace; a journal, a snapshot or a service has a cluster of its own"
            )
        make_task = partial(_origin_tasks, from_, policy, param, growth, positive_duration("--horizon", horizon))
    hardware, known, tasks_for = make_task()
    market = _market(hardware, known, budget, by_gpu, back if retire else {}, buy)
    request = PlanRequest(
        market=market,
        goal=chosen,
        seeds=seeds,
        retire=_retirable(hardware) if retire else (),
        task=tasks_for(market),
        lot=lot,
    )
    with show_progress("simulating plans") as report, ProcessPool(workers or os.cpu_count() or 1) as pool:
        result = make_capacity_plan(request, pool.run, report)
    if output is Format.json:
        print_json(plan_to_json(result, market, hardware, chosen))
    else:
        _print(result, market, hardware, chosen)


# ---- where the futures begin -----------------------------------------------------------------------------------------

# The cluster, the GPUs whose speeds are known, and a function from a market to the tasks of its fleets.
_Begin = tuple["Hardware", tuple[str, ...], Callable[["Market"], Callable[["FleetPlan", int], "FutureTask"]]]


def _trace_tasks(
    trace: str,
    cluster: str,
    policy: str | None,
    param: list[str] | None,
    growth: float,
    jobs: int | None,
    importing: Importing,
    rules: WorldOptions,
) -> _Begin:
    from dataclasses import replace

    from fairlead.studies.compare.workloads import from_file
    from fairlead.studies.planning.futures import FutureTask, resampled
    from fairlead.studies.policy_lab.plugins import load_policy
    from fairlead.studies.runs.simulate import Setup, check_tenants, without_impossible
    from fairlead.traces.clusters import read_cluster
    from fairlead.traces.formats import Trace

    profile, hardware = importing.profile(), read_cluster(cluster, importing.aliases())
    own = load_policy(policy or POLICY)
    rules.rules().refuse_task_options([own])
    own = own.with_parameters(parse_parameters(param or [], own))
    common = rules.rules().setup(hardware, Trace((), "", ""), profile, own, aliases=importing.aliases())
    if common.changes:
        raise InputError("--cluster-changes: a plan changes the cluster itself; leave this out")
    workload = from_file(trace, profile, hardware, jobs, {"format": importing.trace_format, **importing.choices()})

    @cache
    def of_seed(seed: int) -> Setup:
        setup = replace(common, trace=workload(None, seed), world=replace(common.world, seed=seed))
        check_tenants(setup)
        left, _ = without_impossible(setup, skip=rules.skip_impossible)
        if len(left.jobs) < 2 or left.jobs[0].arrival_s == left.jobs[-1].arrival_s:
            raise InputError(
                "the jobs span no time, so no future can be drawn from them; give a longer trace", path=trace
            )
        return replace(setup, trace=resampled(left, seed, growth))

    of_seed(0)  # mistakes in the files are found before anything is simulated

    def tasks(market: Market) -> Callable[[FleetPlan, int], FutureTask]:
        reference = _reference(hardware, market)
        return lambda fleet, seed: FutureTask(fleet, seed, reference, setup=of_seed(seed))

    return hardware, profile.gpus, tasks


def _origin_tasks(
    from_: str | None, policy: str | None, param: list[str] | None, growth: float, horizon_s: float
) -> _Begin:
    from dataclasses import replace

    from fairlead.library.origins import open_origin, running_origin
    from fairlead.policies import as_round_policy
    from fairlead.studies.planning.futures import FutureTask
    from fairlead.studies.policy_lab.plugins import load_policy

    origin = running_origin() if from_ is None else open_origin(from_)
    if policy is not None or param:
        own = origin.policy if policy is None else as_round_policy(load_policy(policy))
        own = as_round_policy(own.with_parameters(parse_parameters(param or [], own)))
        origin = replace(origin, policy=own, carried=None)

    def tasks(market: Market) -> Callable[[FleetPlan, int], FutureTask]:
        reference = _reference(origin.state.cluster, market)
        return lambda fleet, seed: FutureTask(fleet, seed, reference, origin=origin, horizon_s=horizon_s, growth=growth)

    return origin.state.cluster, origin.header.profile.gpus, tasks


def _reference(hardware: Hardware, market: Market) -> Hardware:
    from fairlead.studies.planning.fleets import FleetPlan, changed_cluster

    most = [(offer, market.affordable(FleetPlan(), offer)) for offer in market.offers]
    return changed_cluster(hardware, FleetPlan(tuple((offer, max(count, 1)) for offer, count in most)))


# ---- the market ------------------------------------------------------------------------------------------------------


def _market(
    hardware: Hardware,
    known: tuple[str, ...],
    budget: str,
    by_gpu: dict[str, float],
    back: dict[str, float],
    buy: list[str] | None,
) -> Market:
    from fairlead.model.gpus import canonical_gpu
    from fairlead.studies.planning.fleets import Market, Offer, nodes_of, present_types

    amount, unit = _budget(budget, bool(by_gpu))
    price_of = {canonical_gpu(gpu): money for gpu, money in by_gpu.items()}
    sizes = list(dict.fromkeys(_node(text) for text in buy or ()))
    if not sizes:
        present = (hardware.gpu[hardware.types.index(t)] for t in present_types(hardware))
        sizes = [(gpu, None) for gpu in dict.fromkeys(price_of or present)]
    offers: list[Offer] = []
    for gpu, size in sizes:
        if gpu not in known:
            raise InputError(f"no speed on {gpu} is known here, so it cannot be planned; {did_you_mean(gpu, known)}")
        gpus = size or _usual_size(hardware, gpu)
        if price_of and gpu not in price_of:
            raise InputError(f"{gpu} has no price; add --price {gpu}=MONEY, or leave it out of --buy")
        offers.append(Offer(gpu, gpus, price_of[gpu] * gpus if price_of else 1.0 if unit == "nodes" else float(gpus)))
    if back and not price_of:
        raise InputError("--resale is money, so it needs prices; add --price TYPE=MONEY")
    brings = {
        type_: money * float(hardware.node_gpus[list(nodes_of(hardware, type_))].sum()) for type_, money in back.items()
    }
    return Market(tuple(offers), amount, unit, brings)


def _budget(text: str, priced: bool) -> tuple[float, str]:
    from fairlead.studies.planning.fleets import GPUS, MONEY, NODES

    match = re.fullmatch(r"([0-9][0-9_,]*(?:\.[0-9]+)?)\s*(nodes?|gpus?|)", text.strip().lower())
    if not match or float(match[1].replace(",", "")) <= 0:
        raise InputError(f'--budget "{text}": wanted money such as 500000, or 4nodes or 32gpus')
    unit = {"n": NODES, "g": GPUS, "": MONEY}[match[2][:1]]
    if unit == MONEY and not priced:
        raise InputError(
            f'--budget "{text}" is money, but no GPU has a price; add --price TYPE=MONEY, or write {text}nodes'
        )
    if unit != MONEY and priced:
        raise InputError(f'--budget "{text}" is not money, but GPUs have prices; leave the prices out, or write money')
    return float(match[1].replace(",", "")), unit


def _node(text: str) -> tuple[str, int | None]:
    from fairlead.model.gpus import canonical_gpu

    match = re.fullmatch(r"(?:([1-9]\d{0,3})x)?([a-z]\w[\w.-]*)", text.strip().lower())
    if not match:
        raise InputError(f'--buy "{text}" is not [GPUSx]TYPE, such as 8xh100')
    return canonical_gpu(match[2]), int(match[1]) if match[1] else None


def _usual_size(hardware: Hardware, gpu: str) -> int:
    """The size of the largest node of the type; if the cluster has none, of its largest node."""
    own = [int(hardware.largest_node[t]) for t, name in enumerate(hardware.gpu) if name == gpu and hardware.capacity[t]]
    return max(own) if own else int(hardware.node_gpus.max())


def _retirable(hardware: Hardware) -> tuple[str, ...]:
    from fairlead.studies.planning.fleets import present_types

    types = present_types(hardware)
    return tuple(types) if len(types) > 1 else ()


def _read_prices(path: str, column: str) -> dict[str, float]:
    """A column of a CSV file with the columns gpu, price and perhaps resale; empty cells are left out."""
    from fairlead.traces.files import read_text

    reader = csv.DictReader(read_text(path).splitlines(), skipinitialspace=True)
    names = [name.strip() for name in reader.fieldnames or ()]
    reader.fieldnames = names
    if not {"gpu", "price"} <= set(names) <= {"gpu", "price", "resale"}:
        raise InputError(f"the columns are {', '.join(names)}; wanted gpu, price and perhaps resale", path=path, line=1)
    pairs: dict[str, float] = {}
    for row in reader:
        text = (row.get(column) or "").strip()
        try:
            pairs |= numbers_of([f"{(row['gpu'] or '').strip()}={text}"], column) if text else {}
        except InputError as error:
            raise error.at(path, reader.line_num) from None
    return pairs


# ---- the answer ------------------------------------------------------------------------------------------------------


def _print(result: PlanResult, market: Market, hardware: Hardware, goal: Goal) -> None:
    from fairlead.studies.planning.wording import recommendation

    room = get_terminal_size().columns
    for sentence in recommendation(result, market, hardware, goal):
        print_lines(textwrap.fill(sentence, room))
    print_lines("")
    against = ["plan", "cost", f"change of {goal.label}", "beyond noise", _per(market)]
    print_wrapped_table("Plans", against, [_against(row, market) for row in result.rows], 1, room)
    figures = ["plan", "mean JCT", "mean wait", "utilisation", "worst tenant"]
    print_wrapped_table("Their figures", figures, [_figures(row) for row in result.rows], 1, room)
    if result.worth:
        _print_worth(result, market, hardware, room)
    first, last = result.seeds[0], result.seeds[-1]
    unit = "1,000 units of money" if _is_money(market) else f"one of the {market.unit}"
    futures = (
        f"{result.simulations:,} simulated futures, {result.jobs:,.0f} jobs each on average; the search used seeds 0 to "
        f"{first - 1}, the numbers are from seeds {first} to {last}, in parentheses the smallest and the largest"
    )
    words = (
        "worst tenant: the largest ratio of the time of a tenant's jobs to that of the same work at once on the fastest "
        f"GPUs; saved: completion time of all jobs, in job-hours for {unit}"
    )
    for line in (futures, words):
        print_lines(textwrap.fill(line, room))


def _is_money(market: Market) -> bool:
    from fairlead.studies.planning.fleets import MONEY

    return market.unit == MONEY


def _per(market: Market) -> str:
    return "saved per 1000" if _is_money(market) else f"saved per {market.unit[:-1]}"


def _against(row: PlanRow, market: Market) -> list[str]:
    from fairlead.studies.planning.plan import NOISE
    from fairlead.studies.planning.wording import change_text

    against, gain = row.against_present, row.gain_per_cost
    saved = "-" if gain is None else format_number(gain * (1000 if _is_money(market) else 1))
    cells = [row.fleet.name, f"{row.cost:,.10g}"]
    if against is None or row.stranded:
        return [*cells, f"{row.stranded:,} jobs could never run" if row.stranded else "-", "-", saved]
    return [*cells, change_text(against), "no" if against.verdict == NOISE else against.verdict, saved]


def _figures(row: PlanRow) -> list[str]:
    if row.stranded:
        return [row.fleet.name, *["-"] * 4]
    figures = row.figures
    worst = f"{_cell(figures['worst_slowdown'], format_number)} {'/'.join(row.worst_tenants)}"
    hours = (_hours(figures["jct_s"]), _hours(figures["wait_s"]))
    return [row.fleet.name, *hours, _cell(figures["utilisation"], lambda part: f"{part:.0%}"), worst]


def _hours(figure: Ranged) -> str:
    """In one unit, so that a range is short: `8.4h (7.6-10.2)`."""
    unit_s, unit = next(one for one in _UNITS if figure.high < one[0] or one is _UNITS[-1])[1:]
    low, mean, high = (format_number(value / unit_s) for value in (figure.low, figure.mean, figure.high))
    return f"{mean}{unit}" if low == high else f"{mean}{unit} ({low}-{high})"


def _cell(figure: Ranged, text: Callable[[float], str]) -> str:
    low, mean, high = text(figure.low), text(figure.mean), text(figure.high)
    return mean if low == high else f"{mean} ({low}-{high})"


def _print_worth(result: PlanResult, market: Market, hardware: Hardware, room: int) -> None:
    per_gpu = {offer.gpu: offer.price / offer.gpus for offer in market.offers}
    rows = []
    for type_, (mean, low, high) in result.worth.items():
        gpu = next((hardware.gpu[t] for t, name in enumerate(hardware.types) if name == type_), type_)
        worth = f"{mean:.3f}" if high - low < 5e-4 else f"{mean:.3f} ({low:.3f} - {high:.3f})"
        price = per_gpu.get(gpu) if _is_money(market) else None
        rows.append(
            [
                type_,
                worth,
                "-" if price is None else f"{price:,.10g}",
                "-" if not price else format_number(1e6 * mean / price),
            ]
        )
    columns = ["type", "worth of one more GPU", "its price", "worth per million"]
    print_wrapped_table("What one more GPU would add, in GPUs at full speed", columns, rows, 1, room)
