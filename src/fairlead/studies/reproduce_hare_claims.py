"""Hare's claims beside what `reproduce_hare` found, with the sentences that say why they differ."""

from __future__ import annotations

from typing import Any

from fairlead.studies.claims import Claim, Study, Table, number, percent, seeds_of
from fairlead.studies.reproduce_hare import FIRST_SEED, QUICK, Scale

WORLD = """\
Eight models with the speed-ups of the paper's figure 2 on V100, T4, M60, K80 (GPU counts in this order; test bed 8,4,2,1, even
8,8,8,8); 20-200 rounds (200 jobs and more: 5-50, weights 1-5); synchronisation 15 % and switching 3 % of a job's shortest task time;
a gang pays 0.05 s to start, a task takes 0.03-0.44 s on a V100; Poisson arrivals in place of the Google trace. Load is offered work
over what all GPUs can do together. k, the tasks of a round, is 1, 2, 4, 8 with .3, .25, .25, .2 unless said. Knobs were chosen on
seeds below 100. Every schedule is checked independently."""
READING = """\
Numbers are ratios of weighted mean JCT; above 1 ours is faster. `hare` is the best of a portfolio that knows all jobs in advance;
"hare, no future" is one fixed rule (weighted SRPT, comparative advantage) that knows lengths and no later arrivals, the one to
compare with; `hlas` knows neither. AlloX puts a job on one GPU; homo is Sched_Homo; faithful is Algorithm 1 as printed. Gangs are
placed blind to types, on the fastest idle GPUs, or on one type where enough are idle."""

WHY = {
    "allox / hare": """\
about 2x shows with arrivals and several tasks per round and grows with k, because AlloX runs the tasks of a round one after another; in a
batch it is closer: all GPUs are busy whatever one does, and lengths count.""",
    "srtf gang, fastest / hare": "our gangs take the fastest idle GPUs and are preempted, and the paper does not say how it places them.",
    "homo / hare": "our Sched_Homo is event-driven, which its name alone does not say.",
    "fifo gang, fastest / hare": "the paper's 4.0 lies within ours with arrivals on the even cluster; with k = 1 or 8 there is less to gain.",
    "tiresias, blind / hlas": """\
the paper does not name its baseline. 2.94x shows against gangs that are blind to types, not against a Tiresias that takes the fastest idle
GPUs, or one type.""",
    "faithful / hare": """\
Algorithm 1 as printed takes the GPU that has been free longest, whatever its type, and never fills a hole.""",
}

REMARKS = (
    """\
**Network.** The paper's JCT shortens by 31 % from 10 to 25 Gbit/s; ours by far less (sweep: network), because we set synchronisation to
15 % of a task. **One task per round** (k = 1): comparative advantage in the choice of the GPU closes the gap to matching
(docs/decisions/0032-comparative-advantage.md).""",
    """\
**Ablation.** Relaxed tasks bring most; order and advantage matter under load. **Switching.** Fast switching is a precondition: with the
default's seconds per switch every gang scheduler is far ahead of Hare. Among fast ones the choice hardly shows.""",
    "**Open.** The papers' trace, loads and the online algorithm's baselines are not public; HLAS beyond its abstract is our reading.",
)


def study(scale: Scale, parts: dict[str, Any]) -> Study:
    seeds = seeds_of(range(FIRST_SEED, FIRST_SEED + scale.seeds))
    heads = {name.removeprefix("headline: "): part for name, part in parts.items() if name.startswith("headline")}
    tables = [_headlines(heads, seeds), _ablation(parts["ablation"], seeds), _switching(parts["switching"], seeds)]
    tables += [_sweep(name, part, seeds) for name, part in parts.items() if name.startswith("sweep")]
    settings = "\n".join(f"- {name}: {part['setting']}" for name, part in heads.items())
    world = f"{WORLD}\n\nThe settings of the first table:\n\n{settings}"
    paper = "Hare (HPDC 2022, IEEE TCC 2024)"
    return Study("hare", paper, scale == QUICK, world, READING, tuple(tables), REMARKS)


def _headlines(heads: dict[str, Any], seeds: str) -> Table:
    first = next(iter(heads.values()))
    rows = []
    for i, row in enumerate(first["ratios"]):
        ratio = f"{row['of']} / {row['to']}"
        ours = tuple(number(part["ratios"][i]) for part in heads.values())
        rows.append(Claim(ratio, row["paper"].removeprefix("-"), ours, WHY.get(ratio, "")))
    for kind, text in (
        ("sum w C / lower bound", "hare: sum w C / lower bound"),
        ("JCT / lower bound", "hare: JCT / (lower bound less arrivals)"),
    ):
        rows.append(Claim(text, "", tuple(number(part[kind]) for part in heads.values())))
    return Table("ratios by setting", seeds, tuple(heads), tuple(rows))


def _ablation(part: dict[str, Any], seeds: str) -> Table:
    kinds = list(next(iter(part.values()))["ratios"])
    rows = tuple(Claim(kind, "", tuple(number(row["ratios"][kind]) for row in part.values())) for kind in kinds)
    return Table("ablation: JCT of what is left / that of all of it", seeds, tuple(part), rows)


def _switching(part: dict[str, Any], seeds: str) -> Table:
    hits = part["switches that find their model"]
    rows = [Claim("tasks that start with a switch", "", (_share(part["tasks that start with a switch"]), "-"))]
    for kind, values in part["JCT / with free switches"].items():
        rows.append(Claim(kind, "", (_share(hits[kind]) if kind in hits else "-", number(values, 3))))
    columns = ("switches that find their model", "JCT / with free switches")
    return Table(f"switching: {part['setting']}", seeds, columns, tuple(rows))


def _share(values: dict[str, float]) -> str:
    return percent(values, 0, signed=False)


def _sweep(name: str, part: dict[str, Any], seeds: str) -> Table:
    first = next(iter(part.values()))
    shown = [i for i, row in enumerate(first["ratios"]) if row["of"] not in ("faithful", "hare, no future")]
    columns = ("hare's JCT", *(f"{first['ratios'][i]['of']} / {first['ratios'][i]['to']}" for i in shown))
    rows = tuple(
        Claim(label, "", (number(row["jct"]["hare"], 0), *(number(row["ratios"][i]) for i in shown)))
        for label, row in part.items()
    )
    return Table(f"{name} (first line: {first['setting']})", seeds, columns, rows)
