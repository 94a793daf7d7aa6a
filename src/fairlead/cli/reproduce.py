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
shares. The largest gains are over max-min whose gangs ignore nodes; over Gavel and Gandiva_fair with the same packing the
gain of throughput is within the spread over seeds. docs/reproduction.md discusses each line."""


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
