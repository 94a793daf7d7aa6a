"""OEF's claims beside what `reproduce_oef` found, with the sentences that say why they differ."""

from __future__ import annotations

from typing import Any

from fairlead.studies.claims import Claim, Study, Table, number, percent, seeds_of
from fairlead.studies.reproduce_oef import QUICK, STATIC, Scale

WORLD = """\
Speeds of RTX 3070/3080/3090 are Lambda's measurements; 8 GPUs of each on nodes of four, 20 tenants, 300 s rounds, 30 s per
move, 15 % loss for a gang over two nodes, load 1.2, Philly-like durations up to 12 h. The baselines divide between tenants
too, and get the same rounding, packing and refill."""
READING = """\
The paper reports up to 32 % more throughput and 17-19 % shorter JCT than heterogeneity-aware baselines and does not name its
denominators; here each baseline stands alone. A gain above zero is in favour of cooperative OEF."""
NOT_FROM_SHARES = """\
with these measured speeds no division, however unfair, is above the row "no fairness", and envy-freeness leaves only a part of that;
32 % over a baseline that sees types cannot come from the shares."""
SAME_PACKING = """\
against a baseline that sees types and gets the same packing little is left; what cooperative OEF adds there is mostly the
promise. The gain is large only against baselines that ignore types or scatter gangs over nodes."""
BRACKET = "max-min with our packing and max-min with scattered gangs bracket the paper's 17-19 %."
PRICE = "the paper's rows keep envy out at a price: a division without envy need not be Pareto efficient."
RUN_NOT_SHARES = """\
the shares are proof against this lie; a run is not quite, because leftover GPUs and moves to idle ones go by believed speeds
too. One tenant of 20 has a dozen jobs, so the spread over seeds is wide."""

PAPER_STATIC = {"gandiva-fair": "up to +32 %", "gavel": "up to +32 %"}
PAPER_PROMISES = {
    "oef-coop": "no envy, sharing incentive, Pareto efficient: always",
    "oef-noncoop": "exaggeration never pays",
}
PAPER_DYNAMIC = dict.fromkeys(("gandiva-fair", "gavel"), "throughput up to +32 %, JCT 17-19 % shorter")


def study(scale: Scale, parts: dict[str, Any]) -> Study:
    tables = [_static(name, part, scale) for name, part in parts.items() if name.startswith("static")]
    tables.append(_promises(parts["broken promises, RTX 3070/3080/3090"], scale))
    tables += [_dynamic(parts["dynamic run"], scale), _liar(parts["dynamic run with one liar"], scale)]
    return Study("oef", "OEF (Middleware 2024)", scale == QUICK, WORLD, READING, tuple(tables), ())


def _static(name: str, part: dict[str, Any], scale: Scale) -> Table:
    rows = tuple(
        Claim(
            rule,
            PAPER_STATIC.get(rule, ""),
            (number(row["relative_to_equal"], 3), percent(row["coop_gain"]), f"{100 * row['coop_best_gain']:+.1f} %"),
            NOT_FROM_SHARES if rule in PAPER_STATIC else "",
        )
        for rule, row in part.items()
    )
    columns = ("total / equal shares", "oef-coop gains over it", "at best")
    return Table(name, f"{scale.mixes} random mixes (seeds 0-{scale.mixes - 1})", columns, rows)


def _promises(part: dict[str, Any], scale: Scale) -> Table:
    kinds = list(next(iter(part.values())))
    rows = tuple(
        Claim(
            rule,
            PAPER_PROMISES.get(rule, ""),
            tuple(_broken(part[rule][kind]) for kind in kinds),
            PRICE if rule == "oef-coop" and part[rule]["Pareto"]["broken"] else "",
        )
        for rule in STATIC
    )
    seeds = f"{scale.mixes} random mixes, lies searched for in {scale.lies} of them"
    return Table("mixes in which a promise is broken (by how much at worst)", seeds, tuple(kinds), rows)


def _dynamic(part: dict[str, Any], scale: Scale) -> Table:
    whys = {**dict.fromkeys(PAPER_DYNAMIC, SAME_PACKING), "max-min": BRACKET}
    rows = tuple(
        Claim(
            policy,
            PAPER_DYNAMIC.get(policy, ""),
            (
                percent(row["coop_throughput_gain"]),
                percent(row["coop_jct_reduction"]),
                number(row["throughput"], 1),
                number(row["jct_h"], 2),
                number(row["max_ftf"], 1),
            ),
            whys.get(policy, ""),
        )
        for policy, row in part.items()
    )
    columns = (
        "coop: more throughput",
        "coop: shorter JCT",
        "throughput (3070 equivalents)",
        "mean JCT, h",
        "max FTF",
    )
    return Table(f"dynamic run, {scale.jobs} jobs", seeds_of(range(scale.seeds)), columns, rows)


def _liar(part: dict[str, Any], scale: Scale) -> Table:
    rows = tuple(
        Claim(
            policy,
            "exaggeration never pays" if policy == "oef-noncoop" else "",
            (percent(row["liar_jct_change"]), percent(row["others_jct_change"])),
            RUN_NOT_SHARES if policy == "oef-noncoop" else "",
        )
        for policy, row in part.items()
    )
    title = "dynamic run, one tenant claims 1.5x on the faster types: change of mean JCT against telling the truth"
    return Table(title, seeds_of(range(scale.seeds)), ("the liar", "the others"), rows)


def _broken(cell: dict[str, float]) -> str:
    worst = f" ({100 * cell['worst']:.2f} %)" if cell["broken"] else ""
    return f"{cell['broken']} of {cell['of']}{worst}"
