"""Hare's claims next to the measurements of its experiment, with sentences that explain the differences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fairlead.studies.papers import verdicts
from fairlead.studies.papers.claim_tables import Claim, Study, Table, number, percent, seeds_of
from fairlead.studies.papers.hare.experiment import DONE, FIRST_SEED, QUICK, HareScale, ratio
from fairlead.studies.papers.hare.task_workloads import GBIT, MODELS, SYNC, UNIT_MS
from fairlead.studies.papers.spread import SeedSpread, spread
from fairlead.studies.papers.verdicts import Verdict, VerdictWord

WORLD = """\
Eight models have the speed-ups of the paper's figure 2 on V100, T4, M60, K80 (GPU counts are in this order; the test bed is
8,4,2,1, even is 8,8,8,8). Jobs have 20-200 rounds (with 200 jobs and more: 5-50, weights 1-5); synchronisation takes 15 % and
switching 3 % of a job's shortest task time; a gang pays 0.05 s to start, and a task takes 0.03-0.44 s on a V100. Arrivals are
Poisson instead of the Google trace. Load is the offered work divided by what all GPUs can do together. k, the tasks of a
round, is 1, 2, 4, 8 with probabilities .3, .25, .25, .2 unless stated otherwise. Parameters were chosen on seeds below 100.
Every schedule is checked independently."""
READING = """\
Numbers are ratios of weighted mean JCT unless stated otherwise; above 1, ours is faster. `hare` is the best of a portfolio
that knows all jobs in advance; "hare, no future" is one fixed rule (weighted SRPT, comparative advantage) that knows lengths
but no later arrivals, and is the one to compare with; `hlas` knows neither. AlloX puts a job on one GPU; homo is Sched_Homo;
faithful is Algorithm 1 as printed. Gangs are placed without regard to types (blind), on the fastest idle GPUs, or on one
type if enough of its GPUs are idle."""

UNKNOWN = "we do not know why."
MANY_TASKS = (
    "AlloX runs the tasks of a round one after another, so it falls further behind with more tasks in a round; the paper's "
    "k are not known."
)
PREEMPTED = (
    "our gangs take the fastest idle GPUs and can be pre-empted; the paper does not state how it places and stops them."
)
EVENTS = "our Sched_Homo is event-driven, which the paper does not specify."
QUEUE = "a queue in order of arrival depends mostly on the arrivals, and our trace is not the paper's."
UNNAMED = "the paper does not name its baseline: we see 2.94x against gangs that are blind to types, but not against this one."
ONE_GPU = "AlloX does not benefit from equal GPUs, because it runs all tasks of a round on one GPU."
CLOSER = "its mean JCT is closer to Hare's than in the paper, and so is its distribution."
FARTHER = "its mean JCT is as far behind as in the paper, so fewer jobs are behind, but by more."
ROUNDS = """\
in our simulation the time of a task grows with its batch and the number of rounds falls, so larger batches save
synchronisation and switching; how the paper scales them is not known."""

# (scheduler, the paper's ratio, the reason if ours is below, the reason if ours is above)
OFFLINE = (
    ("allox", 1.9, UNKNOWN, MANY_TASKS),
    ("srtf gang, fastest", 2.6, PREEMPTED, ""),
    ("homo", 2.4, EVENTS, ""),
    ("fifo gang, fastest", 4.0, QUEUE, QUEUE),
)
PAPER_RATIO = {scheduler: paper for scheduler, paper, *_ in OFFLINE}
SHOWN_OFFLINE = (
    *("allox", "srtf gang, fastest", "srtf gang, one type", "homo", "fifo gang, fastest", "fifo gang, one type"),
    *("hare, no future", "faithful"),
)
SHOWN_ONLINE = ("tiresias, blind", "tiresias, fastest", "tiresias, one type", "allox")
IN_SWEEPS = (
    *(("allox", "hare"), ("srtf gang, one type", "hare"), ("homo", "hare"), ("fifo gang, one type", "hare")),
    *(("tiresias, blind", "hlas"), ("tiresias, one type", "hlas"), ("hlas", "hare")),
)
BED = ("test bed", "test bed, weights", "test bed, bursts")
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
    tables = [_test_bed(heads, seeds), _online(heads, seeds)]
    tables += [_simulations(sweeps, seeds)] if sweeps else []
    tables += [_ablation(parts["ablation"], seeds), _with_lengths(heads, seeds), _without_lengths(heads, seeds)]
    tables += [_bounds(heads, seeds), _switching(parts["switching"], seeds)]
    tables += [_sweeps(sweeps, seeds)] if sweeps else []
    settings = "\n".join(f"- {name}: {part['setting']}" for name, part in heads.items())
    world = f"{WORLD}\n\nThe settings by name:\n\n{settings}"
    findings = tuple(f for f in (_over_settings(heads), _printed_rule(heads), _slow_switches(parts["switching"])) if f)
    paper = "Hare (HPDC 2022, IEEE TCC 2024)"
    return Study("hare", paper, scale == QUICK, world, READING, tuple(tables), findings=findings, limits=LIMITS)


# ---- compared with the paper ---------------------------------------------------------------------------------------


def _test_bed(heads: dict[str, Any], seeds: str) -> Table:
    shown = {name: heads[name] for name in BED if name in heads}
    rows = []
    for scheduler, paper, if_below, if_above in OFFLINE:
        ours = [ratio(part, scheduler, "hare") for part in shown.values()]
        verdict = verdicts.gain(ours, paper)
        why = verdicts.why(verdict, if_below, if_above)
        rows.append(Claim(f"{scheduler} / hare", f"{paper:g}", tuple(number(o) for o in ours), why, verdict))
    for scheduler, paper in (("allox", 0.667), ("homo", 0.565)):
        done = [spread(np.array(part["done with hare"][scheduler])) for part in shown.values()]
        behind = [_mirrored(values) for values in done]
        verdict = verdicts.gain(behind, DONE - paper, 0.0)
        why = verdicts.why(verdict, _why_behind(scheduler, list(shown.values())))
        claim = f"when hare has ended {100 * DONE:.1f} % of its jobs, {scheduler} is behind by"
        cells = tuple(percent(values, signed=False) for values in behind)
        rows.append(Claim(claim, f"{100 * (DONE - paper):.1f} % of jobs", cells, why, verdict))
    return Table("lengths known: the test bed", seeds, tuple(shown), tuple(rows))


def _why_behind(scheduler: str, parts: list[dict[str, Any]]) -> str:
    reached = [ratio(part, scheduler, "hare").mean >= PAPER_RATIO[scheduler] for part in parts]
    return FARTHER if all(reached) else UNKNOWN if any(reached) else CLOSER


def _mirrored(done: SeedSpread) -> SeedSpread:
    """By how much a fraction of finished jobs is below Hare's."""
    return SeedSpread(DONE - done.mean, DONE - done.high, DONE - done.low)


def _online(heads: dict[str, Any], seeds: str) -> Table:
    shown = {name: heads[name] for name in CROWDED if name in heads}
    rows = []
    for scheduler in ("tiresias, blind", "tiresias, fastest", "tiresias, one type"):
        ours = [ratio(part, scheduler, "hlas") for part in shown.values()]
        verdict = verdicts.gain(ours, 2.94)
        blind = scheduler == "tiresias, blind"
        above = (
            "a gang that is blind to types runs at the pace of its slowest GPU; the paper does not name its baseline."
        )
        why = verdicts.why(verdict, UNKNOWN if blind else UNNAMED, above if blind else "")
        rows.append(
            Claim(f"{scheduler} / hlas", "2.94, baseline unnamed", tuple(number(o) for o in ours), why, verdict)
        )
    return Table("lengths unknown: against least attained service in gangs", seeds, tuple(shown), tuple(rows))


def _simulations(sweeps: dict[str, Any], seeds: str) -> Table:
    """The paper's claims about its larger simulations and its sweeps."""
    grown, most = sweeps["GPUs"], sweeps["jobs"]["300 jobs"]
    named = [scheduler for scheduler, *_ in OFFLINE]
    by_mean = sorted(named, key=lambda scheduler: ratio(most, scheduler, "hare").mean)
    rows = [
        _ratio("allox / hare, 200 jobs on 100 to 180 GPUs", _pooled(grown.values(), "allox"), "about 2", 2.0, UNKNOWN, MANY_TASKS),
        _ratio(
            f"closest baseline / hare, 300 jobs on 160 GPUs: {by_mean[0]}", ratio(most, by_mean[0], "hare"), "2.2", 2.2,
            PREEMPTED if by_mean[0].startswith("srtf") else EVENTS if by_mean[0] == "homo" else UNKNOWN,
        ),
        _ratio(
            f"farthest baseline / hare, 300 jobs on 160 GPUs: {by_mean[-1]}", ratio(most, by_mean[-1], "hare"), "5.1", 5.1, QUEUE
        ),
    ]  # fmt: skip
    same = ratio(sweeps["heterogeneity"]["V100 only"], "homo", "hare")
    verdict = verdicts.alike([same], 1.0, 0.15)
    rows.append(Claim("homo / hare, V100s alone", "nearly 1", (number(same),), verdicts.why(verdict, UNKNOWN), verdict))
    low, high = sweeps["heterogeneity"]["V100 only"], sweeps["heterogeneity"]["all four"]
    for scheduler in named:
        growth = spread(_ratios(high, scheduler) / _ratios(low, scheduler))
        why = ONE_GPU if scheduler == "allox" else UNKNOWN
        rows.append(_ratio(f"{scheduler} / hare, four types / V100s alone", growth, "grows", 1.0, why))
    slow, fast = (np.array(sweeps["network"][name]["jct"]["hare"]) for name in ("10 Gbit/s", "25 Gbit/s"))
    saved = spread(1.0 - fast / slow)
    verdict = verdicts.gain([saved], 0.312, 0.0)
    slow_sync = SYNC * GBIT / 10.0  # of the shortest task time, at 10 Gbit/s
    bound = (slow_sync - SYNC) / (1.0 + slow_sync)
    sync = (
        f"we set synchronisation to {100 * SYNC:.0f} % of the shortest task at 25 Gbit/s, which is {100 * slow_sync:.1f} % at "
        f"10 Gbit/s, so at most {100 * bound:.0f} % of a round can be saved; the paper's value is not known."
    )
    why = verdicts.why(verdict, sync)
    rows.append(Claim("hare's JCT, 25 instead of 10 Gbit/s: shorter by", "31.2 %", (percent(saved),), why, verdict))
    for scheduler, paper in (("hare", "hardly changes"), ("allox", "hardly changes"), ("homo", "changes")):
        half, twice = (np.array(sweeps["batch size"][name]["jct"][scheduler]) for name in ("batch x 0.5", "batch x 2"))
        change = spread(twice / half - 1.0)
        still = abs(change.mean) <= 0.1
        verdict = Verdict(VerdictWord.ALIKE if still == (scheduler != "homo") else VerdictWord.DIFFERS)
        why = verdicts.why(verdict, ROUNDS)
        rows.append(Claim(f"{scheduler}'s JCT, batches four times as large", paper, (percent(change),), why, verdict))
    return Table("larger simulations and sweeps", seeds, ("ours",), tuple(rows))


def _ratio(claim: str, ours: SeedSpread, paper_text: str, paper: float, if_below: str, if_above: str = "") -> Claim:
    verdict = verdicts.gain([ours], paper)
    return Claim(claim, paper_text, (number(ours),), verdicts.why(verdict, if_below, if_above), verdict)


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
