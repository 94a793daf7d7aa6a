from __future__ import annotations

from typing import Annotated, Any

import typer

from fairlead.cli.options import Throughputs
from fairlead.cli.output import Format, Output, print_json, print_table, progress

app = typer.Typer(help="Run a paper's experiments again and print its numbers beside ours.", no_args_is_help=True)

OEF_NOTES = """\
Paper (Middleware 2024): up to 32 % more throughput and 17-19 % shorter JCT than heterogeneity-aware baselines.
The paper does not name its denominators; here each baseline stands alone and gets the same rounding and packing. Static
shares cannot give 32 % with measured 3070/3080/3090 speeds: even without any fairness the total is about 41 % above equal
shares. The largest gains are over max-min whose gangs ignore nodes; over Gavel and Gandiva_fair with the same packing
throughput gains about one per cent. docs/reproduction.md discusses each line."""

HARE_NOTES = """\
Papers (HPDC 2022, TCC 2024): about 2x over AlloX offline, about 2.94x online over a baseline that is not named. Ratios are of
weighted mean JCT, mean (least..most over seeds); above 1 ours is faster. `hare` is the best of a portfolio that knows all
arrivals; `hare, no future` is one fixed rule that knows lengths and no arrivals; `hlas` knows neither. Gangs are placed
blindly, on the fastest GPUs that are free, or on one type where enough are free. 2.94 shows against a baseline that is blind
to types, not against one that takes the fastest GPUs. docs/reproduction.md discusses each line."""

FFT_NOTES = """\
Paper (ICS 2025): "times" are the baseline's number over FFT's, above 1 FFT is better; mean (least..most over seeds). Its
Gavel is called SJF-like: max-min and shortest-first are both here. FTF is JCT / T_id by the mean-active-jobs rule. "As
printed" are the paper's equations (3) and (5), which give the fastest GPUs to the longest of the jobs that run; "fft" is our
default, whose parameters were chosen on other seeds. docs/reproduction.md discusses each line."""

HOPS_NOTES = """\
Paper (SoCC 2024): the second line of a policy, where there is one. Mean (least..most over seeds). All policies get the same
restart cost, hidden server speeds, packing and, unless "rounds only", refill inside rounds; Sia and Gavel know types only,
Gavel gets the median width. Idle GPUs are counted after every decision that leaves a job waiting. The paper does not give its
jobs' lengths and widths by class: ours are drawn, so compare the ratios between policies. docs/reproduction.md discusses each line."""


@app.callback()
def reproduce() -> None:
    """One command per paper."""


@app.command()
def oef(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer mixes and seeds; within a minute.")] = False,
    throughputs: Throughputs = None,
    output: Output = Format.table,
) -> None:
    """OEF: static totals, broken promises, dynamic runs with and without a liar."""
    from fairlead.studies import reproduce_oef as study
    from fairlead.traces.profiles import read_profile

    scale = study.QUICK if quick else study.FULL
    table = read_profile(throughputs) if throughputs else None
    found: dict[str, Any] = {}
    with progress("reproducing OEF", 5 if table else 4) as tell:
        for name, part in study.reproduce(scale, table):
            found[name] = part
            tell(len(found))
    if output is Format.json:
        print_json({"paper": "OEF, Middleware 2024", "scale": scale.__dict__, "parts": found, "notes": OEF_NOTES})
        return
    for name, part in found.items():
        _PRINT["static" if name.startswith("static") else name.split(",")[0]](name, part)
    print(OEF_NOTES)


@app.command()
def hare(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds, no sweeps; within a minute.")] = False,
    output: Output = Format.table,
) -> None:
    """Hare: tasks against gangs and single GPUs, with and without job lengths; ablation; sweeps."""
    from fairlead.studies import reproduce_hare as study

    scale = study.QUICK if quick else study.FULL
    found: dict[str, Any] = {}
    with progress("reproducing Hare", study.parts(scale)) as tell:
        for name, part in study.reproduce(scale):
            found[name] = part
            tell(len(found))
    if output is Format.json:
        print_json({"paper": "Hare, HPDC 2022", "scale": scale.__dict__, "parts": found, "notes": HARE_NOTES})
        return
    _hare_headlines({name: part for name, part in found.items() if name.startswith("headline")})
    _hare_ablation(found["ablation"])
    _hare_switching(found["switching"])
    for name, part in found.items():
        if name.startswith("sweep"):
            _hare_sweep(name, part)
    print(HARE_NOTES)


def _hare_headlines(parts: dict[str, Any]) -> None:
    for name, part in parts.items():
        rows = [[f"{row['of']} / {row['to']}", row["paper"], _spread(row, 2)] for row in part["ratios"]]
        rows += [
            [f"hare: {kind}", "-", _spread(part[kind], 3)] for kind in ("sum w C / lower bound", "JCT / lower bound")
        ]
        print_table(
            f"{name.removeprefix('headline: ')}: {part['setting']}", ["ratio", "paper", "measured"], rows, left=2
        )


def _hare_ablation(part: dict[str, Any]) -> None:
    for row in part.values():
        rows = [[kind, _spread(values, 2)] for kind, values in row["ratios"].items()]
        print_table(f"ablation: {row['setting']}", ["what is left", "JCT / that of all of it"], rows)


def _hare_switching(part: dict[str, Any]) -> None:
    hits = part["switches that find their model"]
    rows = [
        [kind, f"{hits[kind]['mean']:.0%}" if kind in hits else "-", _spread(values, 3)]
        for kind, values in part["JCT / with free switches"].items()
    ]
    turns = f"{part['tasks that start with a switch']['mean']:.0%} of the tasks start with a switch"
    columns = ["cost, or models kept", "switches that find their model", "JCT / with free switches"]
    print_table(f"switching: {part['setting']}; {turns}", columns, rows)


def _hare_sweep(name: str, part: dict[str, Any]) -> None:
    first = next(iter(part.values()))
    shown = [i for i, row in enumerate(first["ratios"]) if row["of"] not in ("faithful", "hare, no future")]
    columns = ["", "hare JCT", *(f"{first['ratios'][i]['of']} / {first['ratios'][i]['to']}" for i in shown)]
    rows = [
        [label, f"{row['jct']['hare']['mean']:.0f}", *(f"{row['ratios'][i]['mean']:.2f}" for i in shown)]
        for label, row in part.items()
    ]
    print_table(f"{name}: first line is {first['setting']}", columns, rows)


@app.command()
def hops(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer jobs and seeds, no sweeps; within a minute.")] = False,
    output: Output = Format.table,
) -> None:
    """Hops: 64 and 512 GPUs against Sia and Gavel; priorities; arrival rates; what sensing servers is worth."""
    from fairlead.studies import reproduce_hops as study

    scale = study.QUICK if quick else study.FULL
    found: dict[str, Any] = {}
    with progress("reproducing Hops", study.parts(scale)) as tell:
        for name, part in study.reproduce(scale):
            found[name] = part
            tell(len(found))
    if output is Format.json:
        print_json({"paper": "Hops, SoCC 2024", "scale": scale.__dict__, "parts": found, "notes": HOPS_NOTES})
        return
    for name, part in found.items():
        _hops_part(name, part, study.PAPER.get(name, {}))
    print(HOPS_NOTES)


def _hops_part(name: str, part: dict[str, Any], paper: dict[str, dict[str, float]]) -> None:
    numbers = {
        "makespan_h": "makespan, h",
        "jct_h": "JCT, h",
        "wait_h": "waiting, h",
        "max_lr": "max LR",
        "idle": "idle GPUs",
        "max_ftf": "max FTF",
        "decision_s": "slowest decision, CPU s",
    }
    rows = []
    for policy, row in part.items():
        rows.append([policy, *(_spread(row[number], 2) for number in numbers)])
        stated = paper.get(policy.split(",")[0], {}) if policy.split(", ")[-1] in (policy, "rounds only") else {}
        if stated:
            rows.append(["  paper", *(f"{stated[n]:g}" if n in stated else "-" for n in numbers)])
    print_table(f"{name}: mean (least..most over seeds)", ["policy", *numbers.values()], rows)


def _static(name: str, part: dict[str, Any]) -> None:
    rows = [
        [rule, _spread(row["relative_to_equal"], 3), _percent(row["coop_gain"]), f"{row['coop_best_gain']:+.1%}"]
        for rule, row in part.items()
    ]
    columns = ["rule", "total / equal shares (least..most)", "oef-coop gains over it", "at best"]
    print_table(name, columns, rows)


def _promises(name: str, part: dict[str, Any]) -> None:
    kinds = list(next(iter(part.values())))
    rows = [[rule, *(_broken(row[kind]) for kind in kinds)] for rule, row in part.items()]
    print_table(f"{name}: mixes in which a promise is broken (worst case)", ["rule", *kinds], rows)


def _dynamic(name: str, part: dict[str, Any]) -> None:
    rows = [
        [
            policy,
            _spread(row["throughput"], 1),
            _spread(row["jct_h"], 2),
            _spread(row["max_ftf"], 1),
            _percent(row["coop_throughput_gain"]),
            _percent(row["coop_jct_reduction"]),
        ]
        for policy, row in part.items()
    ]
    columns = [
        "policy",
        "throughput (3070 equivalents)",
        "mean JCT, h",
        "max FTF",
        "coop: more throughput",
        "shorter JCT",
    ]
    print_table(f"{name}: mean (least..most over seeds)", columns, rows)


def _liar(name: str, part: dict[str, Any]) -> None:
    rows = [[p, _percent(row["liar_jct_change"]), _percent(row["others_jct_change"])] for p, row in part.items()]
    print_table(f"{name}: change of mean JCT against telling the truth", ["policy", "the liar", "the others"], rows)


_PRINT = {
    "static": _static,
    "broken promises": _promises,
    "dynamic run": _dynamic,
    "dynamic run with one liar": _liar,
}


def _spread(values: dict[str, float], digits: int) -> str:
    mean, low, high = (f"{values[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} ({low}..{high})"


def _percent(values: dict[str, float]) -> str:
    mean, low, high = (f"{values[key]:+.1%}" for key in ("mean", "low", "high"))
    return f"{mean} ({low}..{high})"


def _broken(cell: dict[str, float]) -> str:
    worst = f" ({cell['worst']:.1%})" if cell["broken"] else ""
    return f"{cell['broken']} of {cell['of']}{worst}"


@app.command()
def fft(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer jobs and seeds; within a minute.")] = False,
    output: Output = Format.table,
) -> None:
    """FFT: its test bed with equal and mixed widths, every baseline, wrong lengths, a large simulation."""
    from fairlead.studies import reproduce_fft as study

    scale = study.QUICK if quick else study.FULL
    found: dict[str, Any] = {}
    with progress("reproducing FFT", 5 if scale.large_jobs else 4) as tell:
        for name, part in study.reproduce(scale):
            found[name] = part
            tell(len(found))
    claims = study.claims(found)
    if output is Format.json:
        said = {"paper": "FFT, ICS 2025", "scale": scale.__dict__, "claims": claims, "parts": found}
        print_json({**said, "notes": FFT_NOTES})
        return
    for name, part in found.items():
        if name not in ("wrong lengths", "profiling"):
            _fft_runs(name, part)
    print_table("paper beside ours", list(claims[0]), [list(row.values()) for row in claims])
    print(FFT_NOTES)


def _fft_runs(name: str, part: dict[str, Any]) -> None:
    times = {"jct_h": "mean JCT, h", "makespan_h": "makespan, h", "fractional": "fractional JCT / bound"}
    fair = {"mean_ftf": "mean FTF", "max_ftf": "max FTF", "max_ftf_isolated": "by the isolated run"}
    moves = {"starvation_h": "longest starvation, h", "migrations": "migrations a job"}
    columns = {**times, **fair, **moves}
    rows = [
        [
            policy,
            *(_spread(row[metric], 2) for metric in columns),
            *(_percent(row[metric]).replace("+", "") for metric in ("share_at_most_1", "to_faster")),
        ]
        for policy, row in part.items()
    ]
    print_table(name, ["policy", *columns.values(), "FTF at most 1", "changes to a faster type"], rows)
