"""Hare's claims next to the measurements of its experiment, with sentences that explain the differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairlead.studies.papers import verdicts
from fairlead.studies.papers.causes import TestedCause, cause_of
from fairlead.studies.papers.claim_tables import Claim, Study, Table, number, percent, seeds_of
from fairlead.studies.papers.hare.calibration import (
    ALLOX_DONE,
    FIGURES,
    FITTED_HOMO,
    FITTED_LOAD,
    FITTED_SCALES,
    FITTED_SRTF,
    SCALES,
)
from fairlead.studies.papers.hare.experiment import (
    DONE,
    FIRST_SEED,
    LONGER_SWEEP,
    MANY_JOBS,
    QUICK,
    SEEDS_OF,
    HareScale,
    ratio,
)
from fairlead.studies.papers.hare.task_workloads import MODELS, UNIT_MS
from fairlead.studies.papers.spread import SeedSpread, spread
from fairlead.studies.papers.verdicts import Verdict, VerdictWord

WORLD = """\
Eight models have the speed-ups of the paper's figure 2 on V100, T4, M60, K80 (GPU counts are in this order; the test bed is
8,4,2,1, even is 8,8,8,8). Jobs have 20-200 rounds (with 200 jobs and more: 5-50, weights 1-5); synchronisation takes 15 % and
switching 3 % of a job's shortest task time; a gang pays 0.05 s to start, and a task takes 0.03-0.44 s on a V100. Arrivals are
Poisson instead of the Google trace. Load is the offered work divided by what all GPUs can do together. k, the tasks of a
round, is 1, 2, 4, 8 with probabilities .3, .25, .25, .2 unless stated otherwise. Parameters were chosen on seeds below 100.
The load and the widths of "test bed, fitted" are those of a grid that come closest to what the paper reports about its
baselines relative to AlloX (three JCTs, and how many jobs Sched_Homo has ended when AlloX has ended 66.7 %), on seeds 0 to
2; no figure of Hare enters the fit. The paper does not state how SRTF and Sched_Homo place and stop gangs: each form has a
column, and the fit also says which forms come closest.
Every schedule is checked independently."""
READING = """\
Numbers are ratios of weighted mean JCT unless stated otherwise; above 1, ours is faster. `hare` is the best of a portfolio
that knows all jobs in advance; "hare, no future" is one fixed rule (weighted SRPT, comparative advantage) that knows lengths
but no later arrivals, and is the one to compare with; `hlas` knows neither. AlloX puts a job on one GPU; homo is Sched_Homo;
faithful is Algorithm 1 as printed. Gangs are placed without regard to types (blind), on the fastest idle GPUs, or on one
type if enough of its GPUs are idle."""

UNKNOWN = "we do not know why."
MANY_TASKS = "AlloX runs the tasks of a round one after another; the paper's k are not known."
ONE_GPU = "AlloX does not benefit from equal GPUs, because it runs all tasks of a round on one GPU"
SPREAD_LENGTHS = "the lengths of our jobs differ by a factor of ten, so a short job ends early under any scheduler"
LOAD = "the load sets how long jobs wait, and the fit determines it only roughly"
QUEUE = "a queue in order of arrival depends mostly on the load, which is not known here"
GROWS = "gangs that start in order of arrival leave GPUs idle, so their queue grows with every further job, and ours is short"
LITTLE_SYNC = "we set synchronisation to 15 % of the shortest task at 25 Gbit/s; the paper's value is not known"
ROUNDS = "larger batches mean fewer rounds, and each saves synchronisation and switching"

# The forms of each baseline that its description leaves open, by the column of the table; the paper's ratio to Hare.
TASKS, FASTEST, ONE_TYPE, BLIND, STAY = "tasks", "fastest GPUs", "one type", "blind to types", "not pre-empted"
FORMS: dict[str, tuple[float, dict[str, str]]] = {
    "allox": (1.9, {TASKS: "allox"}),
    "srtf": (
        2.6,
        {
            FASTEST: "srtf gang, fastest",
            ONE_TYPE: "srtf gang, one type",
            BLIND: "srtf gang, blind",
            STAY: "srtf gang, not pre-empted",
        },
    ),
    "homo": (2.4, {TASKS: "homo", BLIND: "homo gang"}),
    "fifo": (4.0, {FASTEST: "fifo gang, fastest"}),
}
FITTED = ("allox", FITTED_SRTF, FITTED_HOMO, "fifo gang, fastest")  # the forms that fit the paper's own figures best
STRONGEST = ("allox", "srtf gang, fastest", "homo", "fifo gang, fastest")
FORMS_FITTED, FORMS_STRONGEST = "baselines in their fitted forms", "in their strongest forms"
SIMILAR, HALF, MORE_JOBS, TWICE_THE_JOBS, ONE_TASK, MORE_SYNC, FREE, TWICE = (
    "similar lengths",
    "half the load",
    "100 jobs",
    "twice the jobs",
    "one task per round",
    "more to send",
    "free synchronisation and switching",
    "twice the load",
)
FITTED_BED = "test bed, fitted"
SWITCHED_OFF = (SIMILAR, HALF, MORE_JOBS)  # on the fitted test bed
ABOVE = {  # if a baseline is farther behind than in the paper
    "allox": MANY_TASKS,
    "srtf": "a gang that may not move keeps slow GPUs; the paper does not state how it moves and stops them.",
    "homo": "a gang that is blind to types runs at the pace of its slowest GPU.",
    "fifo": f"{QUEUE}.",
}
SHOWN_OFFLINE = (
    *("allox", "srtf gang, fastest", "srtf gang, one type", "srtf gang, blind", "srtf gang, not pre-empted"),
    *("homo", "homo gang", "fifo gang, fastest", "fifo gang, one type"),
    *("hare, no future", "faithful"),
)
UNNAMED = (
    "tiresias, blind",
    "tiresias, fastest",
    "tiresias, one type",
    "srtf gang, not pre-empted",
    "homo gang",
    "allox",
    "fifo gang, fastest",
)
SHOWN_ONLINE = ("tiresias, blind", "tiresias, fastest", "tiresias, one type", "allox")
IN_SWEEPS = (
    *(("allox", "hare"), ("srtf gang, one type", "hare"), ("homo", "hare"), ("fifo gang, one type", "hare")),
    *(("tiresias, blind", "hlas"), ("tiresias, one type", "hlas"), ("hlas", "hare")),
)
CROWDED = ("test bed", "even 0.8", "even 0.9", "even 1.0")

LIMITS = (
    """\
**Open questions.** The papers' trace, the loads and the baselines of the online algorithm are not public; HLAS beyond its
abstract is our interpretation. The worked example of figure 1 is a test (tests/tasks), not part of this page. GPU
utilisation over time and the times of single switches are not measured here: switch costs are inputs, as printed in the
paper. The bar of AlloX in the paper's figure 16 appears to be about 1.2 times Hare's, while the text states a factor of
two.""",
    """\
**Comparative advantage** in the choice of the GPU is ours, not the paper's (docs/decisions/0032-comparative-advantage.md);
the ablation includes the rule without it.""",
)


def study(scale: HareScale, parts: dict[str, Any]) -> Study:
    seeds = seeds_of(range(FIRST_SEED, FIRST_SEED + scale.seeds))
    heads = {name.removeprefix("headline: "): part for name, part in parts.items() if name.startswith("headline")}
    sweeps = {name.removeprefix("sweep: "): part for name, part in parts.items() if name.startswith("sweep")}
    fit = [_fit(heads, seeds)] if FITTED_BED in heads else []
    of_heads = f"{seeds}; {MANY_JOBS}: the first {SEEDS_OF[MANY_JOBS]}" if MANY_JOBS in heads else seeds
    of_sweeps = f"{seeds}; 600 jobs: the first" if LONGER_SWEEP in sweeps else seeds
    tables = [_test_bed(heads, of_heads), *fit, _online(heads, seeds)]
    tables += [_simulations(sweeps, of_sweeps)] if sweeps else []
    tables += [_ablation(parts["ablation"], seeds), _with_lengths(heads, of_heads), _without_lengths(heads, of_heads)]
    tables += [_bounds(heads, of_heads), _switching(parts["switching"], seeds)]
    tables += [_sweeps(sweeps, of_sweeps)] if sweeps else []
    settings = "\n".join(f"- {name}: {part['setting']}" for name, part in heads.items())
    world = f"{WORLD}\n\nThe settings by name:\n\n{settings}"
    findings = tuple(
        f for f in (_fits(parts), _over_settings(heads), _printed_rule(heads), _slow_switches(parts["switching"])) if f
    )
    paper = "Hare (HPDC 2022, IEEE TCC 2024)"
    return Study("hare", paper, scale == QUICK, world, READING, tuple(tables), findings=findings, limits=LIMITS)


# ---- compared with the paper ---------------------------------------------------------------------------------------


def _test_bed(heads: dict[str, Any], seeds: str) -> Table:
    """The paper's ratios on the fitted test bed, against each form of a baseline that its description leaves open."""
    part = heads.get(FITTED_BED, next(iter(heads.values())))
    columns = (TASKS, FASTEST, ONE_TYPE, BLIND, STAY, *(one for one in SWITCHED_OFF if f"{FITTED_BED}, {one}" in heads))
    rows = [_against_forms(baseline, part, columns, heads) for baseline in FORMS]
    rows += [_behind(baseline, paper, part, columns, heads) for baseline, paper in (("allox", 0.667), ("homo", 0.565))]
    return Table(
        "lengths known: the test bed, with load and widths fitted to the baselines", seeds, columns, tuple(rows)
    )


def _against_forms(baseline: str, part: dict[str, Any], columns: tuple[str, ...], heads: dict[str, Any]) -> Claim:
    paper, forms = FORMS[baseline]
    ours = {column: ratio(part, scheduler, "hare") for column, scheduler in forms.items()}
    verdict = verdicts.against({column: verdicts.gain([values], paper) for column, values in ours.items()})
    off = _switched_off(heads, lambda other: ratio(other, _closest(forms, ours, paper), "hare"))
    causes = _causes(verdict, ours, off, paper, {HALF: LOAD, MORE_JOBS: GROWS})
    cells = tuple(number(values) if values else "-" for values in map({**ours, **off}.get, columns))
    why = verdicts.why(verdict, "", ABOVE[baseline])
    return Claim(f"{baseline} / hare", f"{paper:g}", cells, why, verdict, causes)


def _behind(baseline: str, done: float, part: dict[str, Any], columns: tuple[str, ...], heads: dict[str, Any]) -> Claim:
    """By how much fewer jobs a baseline has ended when Hare has ended `DONE` of them."""
    _, forms = FORMS[baseline]
    ours = {column: _behind_in(part, scheduler) for column, scheduler in forms.items()}
    paper = DONE - done
    verdict = verdicts.against({column: verdicts.gain([values], paper, 0.0) for column, values in ours.items()})
    off = _switched_off(heads, lambda other: _behind_in(other, _closest(forms, ours, paper)))
    causes = _causes(verdict, ours, off, paper, {SIMILAR: SPREAD_LENGTHS})
    cells = tuple(percent(values, signed=False) if values else "-" for values in map({**ours, **off}.get, columns))
    claim = f"when hare has ended {100 * DONE:.1f} % of its jobs, {baseline} is behind by"
    return Claim(claim, f"{100 * paper:.1f} % of jobs", cells, "", verdict, causes)


def _behind_in(part: dict[str, Any], scheduler: str) -> SeedSpread:
    return spread(DONE - np.array(part["done with hare"][scheduler]))


def _closest(forms: dict[str, str], ours: dict[str, SeedSpread], paper: float) -> str:
    return forms[min(ours, key=lambda column: abs(ours[column].mean - paper))]


def _switched_off(heads: dict[str, Any], value: Callable[[dict[str, Any]], SeedSpread]) -> dict[str, SeedSpread]:
    """Our number on the test bed with a possible cause switched off, by column; the quick form does not run them."""
    settings = {column: f"{FITTED_BED}, {column}" for column in SWITCHED_OFF}
    return {column: value(heads[name]) for column, name in settings.items() if name in heads}


def _causes(
    verdict: Verdict, ours: dict[str, SeedSpread], off: dict[str, SeedSpread], paper: float, texts: dict[str, str]
) -> tuple[TestedCause, ...]:
    if not verdict.is_below:
        return ()
    closest = min(ours.values(), key=lambda values: abs(values.mean - paper))
    return tuple(cause_of(text, column, closest, off[column], paper) for column, text in texts.items() if column in off)


def _fit(heads: dict[str, Any], seeds: str) -> Table:
    """The paper's figures of its baselines next to those of the fitted test bed on seeds that the fit has not seen."""
    jct = heads[FITTED_BED]["jct"]
    names = {"homo": FITTED_HOMO, "srtf": FITTED_SRTF, "fifo": "fifo gang, fastest"}
    rows = []
    for baseline, scheduler in names.items():
        ours = spread(np.array(jct[scheduler]) / np.array(jct["allox"]))
        rows.append(Claim(f"{scheduler} / allox (paper: {FIGURES[f'{baseline} / allox']:.2f})", "", (number(ours),)))
    done = spread(np.array(heads[FITTED_BED]["done with allox"][FITTED_HOMO]))
    claim = f"{FITTED_HOMO}: jobs ended when allox has ended {100 * ALLOX_DONE:.1f} %"
    rows.append(Claim(f"{claim} (paper: {100 * FIGURES['homo done']:.1f} %)", "", (percent(done, signed=False),)))
    title = f"the fit: baselines alone, load {FITTED_LOAD:g}, widths up to {max(FITTED_SCALES)}"
    return Table(title, seeds, ("ours",), tuple(rows))


def _online(heads: dict[str, Any], seeds: str) -> Table:
    """The online algorithm against every candidate for the state of the art that its abstract does not name."""
    shown = [heads[name] for name in CROWDED if name in heads]
    ours = {name: spread(np.concatenate([_ratios(part, name, "hlas") for part in shown])) for name in UNNAMED}
    verdict = verdicts.against({name: verdicts.gain([values], 2.94) for name, values in ours.items()})
    cells = tuple(number(values) for values in ours.values())
    row = Claim("state of the art / hlas", "2.94, baseline unnamed", cells, verdicts.why(verdict, UNKNOWN), verdict)
    names = ", ".join(name for name in CROWDED if name in heads)
    return Table(f"lengths unknown: each candidate for the baseline, over {names}", seeds, tuple(ours), (row,))


def _simulations(sweeps: dict[str, Any], seeds: str) -> Table:
    """The paper's claims about its larger simulations and its sweeps."""
    rows = [
        _row("allox / hare, 200 jobs on 100 to 180 GPUs", "about 2", 2.0, {FORMS_FITTED: _pooled(sweeps["GPUs"].values(), "allox")}),
        _extreme(sweeps, "closest", 2.2, 0),
        _extreme(sweeps, "farthest", 5.1, -1),
    ]  # fmt: skip
    low, high = sweeps["heterogeneity"]["V100 only"], sweeps["heterogeneity"]["all four"]
    same = {FORMS_FITTED: ratio(low, FITTED_HOMO, "hare"), FORMS_STRONGEST: ratio(low, "homo", "hare")}
    verdict = verdicts.against({column: verdicts.alike([values], 1.0, 0.15) for column, values in same.items()})
    rows.append(Claim("homo / hare, V100s alone", "nearly 1", _cells(same), verdicts.why(verdict, UNKNOWN), verdict))
    rows += [
        _growth(number_of, low, high, sweeps["heterogeneity, one task per round"]) for number_of in range(len(FITTED))
    ]
    rows += [_network(sweeps), *(_batches(sweeps, scheduler) for scheduler in ("hare", "allox", "homo"))]
    shown = [i for i in range(len(SIMULATED)) if any(row.ours[i] != "-" for row in rows)]
    rows = [replace(row, ours=tuple(row.ours[i] for i in shown)) for row in rows]
    return Table("larger simulations and sweeps", seeds, tuple(SIMULATED[i] for i in shown), tuple(rows))


SIMULATED = (FORMS_FITTED, FORMS_STRONGEST, ONE_TASK, TWICE, TWICE_THE_JOBS, MORE_SYNC, FREE)


def _cells(values: dict[str, SeedSpread], show: Callable[[SeedSpread], str] = number) -> tuple[str, ...]:
    return tuple(show(values[column]) if column in values else "-" for column in SIMULATED)


def _row(
    claim: str,
    text: str,
    paper: float,
    ours: dict[str, SeedSpread],
    off: dict[str, tuple[SeedSpread, str]] | None = None,
) -> Claim:
    """A ratio that should be large: `off` has our number with a possible cause switched off, by column."""
    verdict = verdicts.against({column: verdicts.gain([values], paper) for column, values in ours.items()})
    others = {column: values for column, (values, _) in (off or {}).items()}
    texts = {column: reason for column, (_, reason) in (off or {}).items()}
    causes = _causes(verdict, ours, others, paper, texts)
    return Claim(claim, text, _cells({**ours, **others}), verdicts.why(verdict, "", MANY_TASKS), verdict, causes)


def _extreme(sweeps: dict[str, Any], which: str, paper: float, place: int) -> Claim:
    """The closest or the farthest baseline with 300 jobs, among the baselines in two sets of forms."""
    most, twice = sweeps["jobs"]["300 jobs"], sweeps["jobs, twice the load"]["300 jobs"]

    def of(forms: Sequence[str], part: dict[str, Any]) -> SeedSpread:
        return sorted((ratio(part, name, "hare") for name in forms), key=lambda values: values.mean)[place]

    ours = {FORMS_FITTED: of(FITTED, most), FORMS_STRONGEST: of(STRONGEST, most)}
    off = {TWICE: (of(FITTED, twice), QUEUE)}
    if longer := sweeps.get(LONGER_SWEEP):
        off[TWICE_THE_JOBS] = (of(FITTED, longer["600 jobs"]), GROWS)
    return _row(f"{which} baseline / hare, 300 jobs on 160 GPUs", f"{paper:g}", paper, ours, off)


def _growth(number_of: int, low: dict[str, Any], high: dict[str, Any], one_task: dict[str, Any]) -> Claim:
    """How a baseline's ratio changes from equal GPUs to four types; above 1 it grows, as in the paper."""
    forms = {FORMS_FITTED: FITTED[number_of], FORMS_STRONGEST: STRONGEST[number_of]}
    ours = {column: spread(_ratios(high, name) / _ratios(low, name)) for column, name in forms.items()}
    off = {}
    if forms[FORMS_FITTED] == "allox":
        growth = _ratios(one_task["all four"], "allox") / _ratios(one_task["V100 only"], "allox")
        off = {ONE_TASK: (spread(growth), ONE_GPU)}
    name = forms[FORMS_STRONGEST].partition(" gang")[0]
    return _row(f"{name} / hare, four types / V100s alone", "grows", 1.0, ours, off)


def _network(sweeps: dict[str, Any]) -> Claim:
    def saved(part: dict[str, Any]) -> SeedSpread:
        slow, fast = (np.array(part[name]["jct"]["hare"]) for name in ("10 Gbit/s", "25 Gbit/s"))
        return spread(1.0 - fast / slow)

    ours, off = {FORMS_FITTED: saved(sweeps["network"])}, {MORE_SYNC: saved(sweeps["network, more to send"])}
    verdict = verdicts.gain(list(ours.values()), 0.312, 0.0)
    causes = _causes(verdict, ours, off, 0.312, {MORE_SYNC: LITTLE_SYNC})
    claim = "hare's JCT, 25 instead of 10 Gbit/s: shorter by"
    return Claim(claim, "31.2 %", _cells({**ours, **off}, percent), "", verdict, causes)


def _batches(sweeps: dict[str, Any], scheduler: str) -> Claim:
    def change(part: dict[str, Any], name: str) -> SeedSpread:
        half, twice = (np.array(part[batch]["jct"][name]) for batch in ("batch x 0.5", "batch x 2"))
        return spread(twice / half - 1.0)

    forms = {FORMS_FITTED: FITTED_HOMO, FORMS_STRONGEST: "homo"} if scheduler == "homo" else {FORMS_FITTED: scheduler}
    ours = {column: change(sweeps["batch size"], name) for column, name in forms.items()}
    off = {FREE: change(sweeps["batch size, free"], forms[FORMS_FITTED])}
    verdict = verdicts.against({column: _stays(values, scheduler != "homo") for column, values in ours.items()})
    causes = _causes(verdict, ours, off, 0.0, {FREE: ROUNDS})
    paper = "changes" if scheduler == "homo" else "hardly changes"
    claim = f"{scheduler}'s JCT, batches four times as large"
    return Claim(claim, paper, _cells({**ours, **off}, percent), "", verdict, causes)


def _stays(values: SeedSpread, expected: bool) -> Verdict:
    """Whether a change of at most a tenth is what the paper reports."""
    still = abs(values.mean) <= 0.1
    return Verdict(VerdictWord.ALIKE if still == expected else VerdictWord.DIFFERS)


def _ratios(part: dict[str, Any], of: str, to: str = "hare") -> Any:
    return np.array(part["jct"][of]) / np.array(part["jct"][to])  # by seed


def _pooled(parts: Iterable[dict[str, Any]], of: str) -> SeedSpread:
    return spread(np.concatenate([_ratios(part, of) for part in parts]))


def _ablation(part: dict[str, Any], seeds: str) -> Table:
    claimed = {"intra-job only": "slower", "inter-job only": "slower"}
    rows = []
    for kind in list(next(iter(part.values()))["ratios"]):
        ours = [row["ratios"][kind] for row in part.values()]
        verdict = verdicts.gain(ours, 1.0) if kind in claimed else None
        why = verdicts.why(verdict, UNKNOWN)
        rows.append(Claim(kind, claimed.get(kind, ""), tuple(number(o) for o in ours), why, verdict))
    return Table("ablation: JCT without one idea / JCT with all of them", seeds, tuple(part), tuple(rows))


# ---- in full -------------------------------------------------------------------------------------------------------


def _with_lengths(heads: dict[str, Any], seeds: str) -> Table:
    rows = tuple(
        Claim(name, "", tuple(number(ratio(part, scheduler, "hare")) for scheduler in SHOWN_OFFLINE))
        for name, part in heads.items()
    )
    return Table("lengths known, every setting: JCT over hare's", seeds, SHOWN_OFFLINE, rows)


def _without_lengths(heads: dict[str, Any], seeds: str) -> Table:
    rows = tuple(
        Claim(
            name,
            "",
            (
                *(number(ratio(part, scheduler, "hlas")) for scheduler in SHOWN_ONLINE),
                number(ratio(part, "hlas", "hare")),
            ),
        )
        for name, part in heads.items()
    )
    columns = (*(f"{scheduler} / hlas" for scheduler in SHOWN_ONLINE), "hlas / hare")
    return Table("lengths unknown, every setting", seeds, columns, rows)


def _bounds(heads: dict[str, Any], seeds: str) -> Table:
    alpha = max(max(model.speedup) / min(model.speedup) for model in MODELS.values())
    limit = alpha * (2.0 + alpha)
    worst = max(heads.values(), key=lambda part: part["sum w C / lower bound"].high)
    verdict = verdicts.never_above([worst["sum w C / lower bound"]], limit)
    rows = [
        Claim(
            "the worst setting",
            f"at most {limit:.0f}",
            _gap(worst),
            verdicts.why(verdict, UNKNOWN),
            verdict,
        ),
        *(Claim(name, "", _gap(part)) for name, part in heads.items()),
    ]
    columns = ("sum w C / lower bound", "JCT / (lower bound less arrivals)")
    return Table(
        "hare relative to a lower bound on all schedules (the paper's bound: alpha (2 + alpha))",
        seeds,
        columns,
        tuple(rows),
    )


def _gap(part: dict[str, Any]) -> tuple[str, str]:
    return number(part["sum w C / lower bound"]), number(part["JCT / lower bound"])


def _switching(part: dict[str, Any], seeds: str) -> Table:
    hits = part["switches that find their model"]
    rows = [Claim("tasks that start with a switch", "", (_share(part["tasks that start with a switch"]), "-"))]
    for kind, values in part["JCT / with free switches"].items():
        rows.append(Claim(kind, "", (_share(hits[kind]) if kind in hits else "-", number(values, 3))))
    columns = ("share (of switches: with a resident model)", "JCT / with free switches")
    title = "switching on the test bed: the paper's three costs, and models kept in this much memory"
    return Table(title, seeds, columns, tuple(rows))


def _sweeps(sweeps: dict[str, Any], seeds: str) -> Table:
    rows = []
    for what, part in sweeps.items():
        for name, row in part.items():
            label = f"{name}'s switches" if what == "switch cost" else name
            jct_s = spread(np.array(row["jct"]["hare"]) * UNIT_MS / 1000)
            cells = (number(jct_s, 1), *(number(ratio(row, of, to)) for of, to in IN_SWEEPS))
            rows.append(Claim(f"{label}: {row['setting'].partition(', k {')[0]}", "", cells))
    columns = ("hare's mean JCT, s", *(f"{of} / {to}" for of, to in IN_SWEEPS))
    return Table("sweeps: one thing changes at a time", seeds, columns, tuple(rows))


def _share(values: SeedSpread) -> str:
    return percent(values, 0, signed=False)


# ---- findings ------------------------------------------------------------------------------------------------------


def _fits(parts: dict[str, Any]) -> str:
    """The closest fits to the paper's baselines, and whether the best one is what the test bed uses."""
    if "fit" not in parts:
        return ""
    fits = parts["fit"]["fits"]
    shown = [
        f"load {fit['load']:g}, widths {fit['widths']}, {fit['homo']}, {fit['srtf']} ({100 * fit['error']:.0f} %)"
        for fit in fits[:3]
    ]
    best = fits[0]
    used = (best["load"], best["homo"], best["srtf"]) == (FITTED_LOAD, FITTED_HOMO, FITTED_SRTF)
    used = used and SCALES[best["widths"]] == FITTED_SCALES
    return (
        f"**The fit.** Of {len(fits)} loads and widths, these come closest to the paper's figures of its baselines (root mean "
        f"square error): {'; '.join(shown)}. The first {'is' if used else 'is NOT'} the one that the test bed uses."
    )


def _over_settings(heads: dict[str, Any]) -> str:
    """The settings in which AlloX is close or ahead, and the value of knowing the future."""
    against = {name: (ratio(part, "allox", "hare"), ratio(part, "allox", "hlas")) for name, part in heads.items()}
    close = [f"{name} ({hare.mean:.2f})" for name, (hare, _) in against.items() if hare.mean < 1.5]
    ahead = [f"{name} ({hlas.mean:.2f})" for name, (_, hlas) in against.items() if hlas.mean < 1.0]
    future = max(ratio(part, "hare, no future", "hare").mean for part in heads.values())
    sentences = []
    if close:
        sentences.append(
            f"AlloX is within 1.5 times Hare's JCT in: {'; '.join(close)}. With one task per round there is nothing to run in "
            "parallel, and in a batch all GPUs are busy under any rule."
        )
    if ahead:
        sentences.append(f"It is ahead of `hlas` in: {'; '.join(ahead)}; there it helps to know lengths.")
    sentences.append(
        f"Knowing later arrivals and choosing from a portfolio gains at most a factor of {future:.2f} on average over seeds."
    )
    return f"**Where the gain is small.** {' '.join(sentences)}"


def _printed_rule(heads: dict[str, Any]) -> str:
    slower = {name: ratio(part, "faithful", "hare").mean for name, part in heads.items()}
    least, most = min(slower, key=slower.__getitem__), max(slower, key=slower.__getitem__)
    if slower[least] <= 1.0:
        return ""
    return (
        "**Algorithm 1 as printed** takes the GPU that has been free longest, of any type, and never fills a gap: its JCT is "
        f"{slower[least]:.1f} ({least}) to {slower[most]:.1f} ({most}) times that of `hare`."
    )


def _slow_switches(part: dict[str, Any]) -> str:
    slower = part["JCT / with free switches"]
    default, pipeswitch, hare = (slower[name].mean for name in ("default", "pipeswitch", "hare"))
    if default < 2.0:
        return ""
    return (
        "**Switching.** Single tasks need fast switching: with the default switch, which takes seconds, JCT is "
        f"{default:.0f} times that with free switches, with PipeSwitch's {pipeswitch:.3f} times and with Hare's {hare:.3f} "
        "times. The choice between the two fast ones makes hardly any difference."
    )
