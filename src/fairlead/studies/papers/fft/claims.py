"""FFT's claims next to the measurements of its experiment, with causes of the differences that were switched off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from fairlead.studies.papers import verdicts
from fairlead.studies.papers.claim_tables import Claim, Study, Table, number, percent, seeds_of
from fairlead.studies.papers.fft.calibration import (
    EQUAL_WIDTHS,
    FIGURES,
    READINGS,
    SEEDS,
    best_fit,
    distances,
    figures,
)
from fairlead.studies.papers.fft.claim_columns import (
    Parts,
    table_of,
)
from fairlead.studies.papers.fft.claim_lines import (
    BY_RUN,
    CHANGE_COLUMNS,
    CHANGE_LINES,
    GAVEL_FAIRNESS,
    GAVEL_LINES,
    LARGE_GAVEL_LINES,
    LARGE_TIRESIAS_LINES,
    ON_TRACES,
    REST_COLUMNS,
    REST_LINES,
    SHARE_COLUMNS,
    SHARE_LINES,
    TIRESIAS_FAIRNESS,
    TIRESIAS_LINES,
    contest,
    fairness,
    large,
    longer,
)
from fairlead.studies.papers.fft.experiment import (
    CROWDED,
    DECISION_SEEDS,
    EMPTIER,
    LARGE_PART,
    QUICK,
    SIMULATED_BEDS,
    TRACES,
    FftScale,
)
from fairlead.studies.papers.fft.runs import (
    ALLOX,
    BASELINES,
    FFT,
    LEAST_LOAD,
    MAX_MIN,
    NO_COMPENSATION,
    RANDOM,
    RANKED,
    SHORTEST,
    scattered,
)
from fairlead.studies.papers.fft.testbed import FITTED
from fairlead.studies.papers.spread import SeedSpread, spread
from fairlead.studies.papers.verdicts import GROUPS, SUCCESS, Verdict, VerdictWord

WORLD = f"""\
The cluster has 12 T4, 12 A10 and 12 V100 (16, 24, 32 GB), four to a host, with rounds of 300 s. Jobs of trace 1 are all
four GPUs wide; those of trace 2 have widths of 1, 2, 3, 4 and 8. Speeds of VGG, ResNet and DenseNet are from a public table
by the first author. The rest is ours, because the paper does not state it: the other speeds, 34 s + state / 1.25 GB/s for
a move (two minutes for the largest model, as in its Fig. 2), a loss of 15 % for a gang on several hosts, and Philly-like
durations up to a day. The load of the pooled GPUs ({FITTED.load:g}) and the shortest job ({FITTED.shortest_s:g} s) are fitted to the paper's figures
of its baselines, without a run of FFT (docs/decisions/0144-fft-fitted-to-its-baselines.md)."""
READING = """\
`fft` is the paper's system, with its equations as printed, and the claims are about it; `fft-ranked` has costs of our own
(docs/decisions/0021-fft-ranked-costs.md), whose parameters were chosen on seeds 100-105. "Times" (x) are the baseline's number
divided by that of `fft`, or of `fft-ranked` where a column says so; above 1, ours is better. A cell with two numbers is about
traces 1 and 2. The paper calls its Gavel "SJF-like" (`gavel-sjf`; `gavel` is max-min), and a job joins Tiresias' queue with the
least load or a random one. It does not state how the gangs of its baselines are placed: they are packed as FFT's, or
"scattered" over hosts. Nor does it state how T_id of FTF, JCT / T_id, is computed: it is by the mean-active-jobs rule, or by
the isolated run (docs/metrics.md). Each of these is a candidate with a column of its own. Columns for `fft-ranked`,
for another load and for longer jobs are not candidates: they switch a possible cause of a difference off. Shares of a baseline
are alike if they are within a fifth of the paper's."""
SIMULATED = """"Up to" in simulations is about the best of the traces that the paper simulates. It says enough about two of them to draw them:
half of the jobs of trace 6 train GPT or OPT models, and the lengths of trace 9 are within a factor of three. Here they have
mixed widths, the fitted load and the cluster of the test bed, and a cell has a number for each
(docs/decisions/0157-the-simulated-traces-of-fft.md)."""

LIMITS = (
    """\
**Table 1 and Fig. 2** of the paper, its worked examples, contradict each other under equation (3); ranked costs reproduce
both (docs/decisions/0020-fft-unit-and-program.md, 0021, and tests/policies). 0021 also shows how kappa trades JCT for the
worst case, and results on other traces: on a half-empty cluster fft-ranked is not ahead.""",
    """\
**Not reproduced:** PAL (SC 2024; the paper is 2.11x and 2.38x ahead of it) places jobs by the measured variability of single
GPUs and by locality, on top of another order. Neither the variability of FFT's GPUs nor the order that it used for PAL is
published, so any number of ours would be invented. The paper's other traces, the cost of fetching datasets after a move,
and the share of placements on A10 hosts are left out, because their inputs are not published. The widths of trace 2 cannot be
fitted, because no figure of a baseline is about that trace alone. The paper simulates up to 20,000 jobs; we simulate 4,000
on ten times the cluster (`python -m benchmarks scale` has 10,000).""",
)


def study(scale: FftScale, parts: dict[str, Any]) -> Study:
    jobs, seeds = (
        f"{scale.jobs} jobs",
        f"{seeds_of(scale.every_seed)}, other workloads {seeds_of(scale.other_bed_seeds)}",
    )
    gavels, queues = (SHORTEST, MAX_MIN), (RANDOM, LEAST_LOAD)
    is_full = LARGE_PART in parts
    at_low_load = f"{seeds}, at a load of {EMPTIER.load:g} seed {scale.first_seed}" if is_full else seeds
    has_traces = all(trace in parts for trace in SIMULATED_BEDS)
    tables = [
        table_of(f"against Gavel, {jobs}", seeds, contest(gavels), GAVEL_LINES, parts),
        table_of(f"fairness against Gavel, {jobs}", seeds, fairness(gavels), GAVEL_FAIRNESS, parts),
        table_of(f"against Tiresias, {jobs}", seeds, contest(queues), TIRESIAS_LINES, parts),
        table_of(
            f"fairness against Tiresias, {jobs}",
            seeds,
            (*fairness(queues), *longer(queues)),
            TIRESIAS_FAIRNESS,
            parts,
        ),
        table_of(f"against AlloX, and makespan, {jobs}", seeds, REST_COLUMNS, REST_LINES, parts),
        table_of(f"jobs with FTF at most 1, {jobs}", seeds, SHARE_COLUMNS, SHARE_LINES, parts),
        table_of(f"changes of type to a faster one, {jobs}", at_low_load, CHANGE_COLUMNS, CHANGE_LINES, parts),
        _alone(parts, seeds_of(scale.every_seed)),
    ]
    if is_full:
        traces = ", and traces 6 and 9" if has_traces else ""
        bed = f"ten times the cluster, mixed widths, {scale.large_jobs} jobs{traces}"
        there = seeds_of(scale.every_seed[: scale.large_seeds])
        first = f"at a load of {CROWDED.load:g}{' and on traces 6 and 9' if has_traces else ''} the first of them"
        there = f"{there}, {first}"
        tables += [
            table_of(f"{bed}: against Gavel", there, large("gavel"), LARGE_GAVEL_LINES, parts),
            table_of(f"{bed}: against Tiresias", there, large("tiresias"), LARGE_TIRESIAS_LINES, parts),
        ]
    tables.append(_decision(parts["one decision"]))
    tables += [_runs(trace, parts[trace], seeds_of(scale.every_seed)) for trace in TRACES]
    tables.append(_fits(parts["calibration"], seeds_of(range(SEEDS[0], SEEDS[0] + scale.calibration_seeds))))
    findings = (_fitted(parts), _by_reading(tables), _ahead(parts), _compensation(parts))
    paper, reading = "FFT (ICS 2025)", f"{READING}\n\n{SIMULATED}" if has_traces else READING
    return Study("fft", paper, scale == QUICK, WORLD, reading, tuple(tables), findings=findings, limits=LIMITS)


def _alone(parts: Parts, seeds: str) -> Table:
    """Claims about FFT without a baseline."""
    wrong, measuring = parts["wrong lengths"], [parts["profiling"][trace]["profiling_share"] for trace in TRACES]
    jct, worst = ([wrong[trace][f"{metric}_change"] for trace in TRACES] for metric in ("jct_h", "max_ftf"))
    rows = (
        Claim(
            "fractional JCT / its lower bound",
            "a constant",
            tuple(number(parts[trace][FFT]["fractional"]) for trace in TRACES),
            verdict=Verdict(VerdictWord.MEASURED),
        ),
        Claim(
            "JCT with lengths wrong by up to 30 %",
            "at most +17 %",
            tuple(map(percent, jct)),
            verdict=verdicts.never_above(jct, 0.17),
        ),
        Claim("max FTF with lengths wrong by up to 30 %", "", tuple(map(percent, worst))),
        Claim(
            "measuring models / GPU time of training",
            "at most 0.8 %",
            tuple(percent(one, 2, signed=False) for one in measuring),
            verdict=verdicts.never_above(measuring, 0.008),
        ),
    )
    return Table("the system alone", seeds, ("fft, trace 1", "fft, trace 2"), rows)


def _decision(cpu_s: dict[str, SeedSpread]) -> Table:
    verdict = verdicts.never_above([cpu_s[FFT]], 1.53)
    row = Claim("CPU s", "1.53", tuple(number(cpu_s[name], 3) for name in (FFT, RANKED)), verdict=verdict)
    title = "one decision for 960 GPUs of 8 types and 4000 jobs (the paper: 1000 GPUs)"
    return Table(title, seeds_of(range(1, DECISION_SEEDS + 1)), (FFT, RANKED), (row,))


def _runs(name: str, part: dict[str, Any], seeds: str) -> Table:
    times = {"jct_h": "mean JCT, h", "makespan_h": "makespan, h", "fractional": "fractional JCT / bound"}
    fair = {"mean_ftf": "mean FTF", "max_ftf": "max FTF", "mean_ftf_isolated": "mean FTF by the isolated run"}
    moves = {"starvation_h": "longest starvation, h", "migrations": "migrations per job", "active": "active jobs"}
    columns = {**times, **fair, **moves}
    rows = tuple(Claim(policy, "", tuple(number(row[metric]) for metric in columns)) for policy, row in part.items())
    return Table(f"{name}: every policy", seeds, tuple(columns.values()), rows)


def _fits(fits: Sequence[dict[str, Any]], seeds: str) -> Table:
    """How far every bed is from the paper's figures of its baselines, in each reading of these."""
    rows = tuple(
        Claim(
            f"load {fit['load']:g}, shortest job {fit['shortest_s']:g} s",
            "",
            tuple(number(spread(distances(fit["readings"][str(reading)]))) for reading in READINGS),
        )
        for fit in fits
    )
    title = (
        "how the workload was fitted: mean of |ln(ours / paper)| over the figures of the baselines (smallest..largest)"
    )
    return Table(title, seeds, tuple(map(str, READINGS)), rows)


def _fitted(parts: Parts) -> str:
    bed, name = best_fit(parts["calibration"])
    reading = next(one for one in READINGS if str(one) == name)
    trace = next(trace for trace, widths in TRACES.items() if widths == EQUAL_WIDTHS)
    means = {
        baseline: {metric: one.mean for metric, one in parts[trace][baseline].items() if isinstance(one, SeedSpread)}
        for baseline in BASELINES
    }
    fresh = figures(means, reading)
    used = (
        "which is what the other tables use"
        if bed == FITTED
        else f"while the other tables use {_named(FITTED.load, FITTED.shortest_s)}"
    )
    beside = "; ".join(f"{one.name} {fresh[one.name]:.2f} ({one.paper:.2f})" for one in FIGURES)
    return (
        f"**The fit.** Closest to the paper's baselines is {_named(bed.load, bed.shortest_s)} ({name}), {used}. In this reading, on "
        f"the seeds of the other tables, the figures are, with the paper's in brackets: {beside}."
    )


def _by_reading(tables: Sequence[Table]) -> str:
    """How many claims succeed if the paper means the same baselines, placement and measure in all of them."""
    judged = [claim.verdict for table in tables for claim in table.claims if claim.verdict and claim.verdict.against]
    places: tuple[Callable[[str], str], ...] = (str, scattered)
    counts = {}
    for place in places:
        for gavel, tiresias, rule in product((SHORTEST, MAX_MIN), (RANDOM, LEAST_LOAD), ("", BY_RUN)):
            baselines = f"{place(gavel)}, {place(tiresias)}"
            reading = f"{baselines}, FTF by {'the isolated run' if rule else 'mean active jobs'}"
            counts[reading] = sum(_succeeds(one, (FFT, gavel, tiresias, ALLOX), place, rule) for one in judged)
    best = max(counts, key=lambda reading: counts[reading])
    fitted, spread_out = (counts[f"{place(SHORTEST)}, {place(RANDOM)}, FTF by mean active jobs"] for place in places)
    return (
        f"**One reading for all claims.** Of {len(judged)} claims with candidates, the closest candidate of each succeeds in "
        f"{sum(verdict.is_success for verdict in judged)}. If the paper means the reading of the fit, {fitted} succeed with packed "
        f"baselines and {spread_out} with scattered ones. The best single reading has {counts[best]}: {best}."
    )


def _succeeds(verdict: Verdict, names: Sequence[str], place: Callable[[str], str], rule: str) -> bool:
    """Whether a claim succeeds against the named contenders, placed and measured in this way where the claim makes the difference."""
    words = dict(verdict.against)
    titles = [
        [f"{title}{ending}" for title in (f"{place(name)}{rule}", place(name), f"{name}{rule}", name)]
        for name in names
        for ending in ("", ON_TRACES)
    ]
    chosen = [next((words[title] for title in of_name if title in words), None) for of_name in titles]
    return any(word is not None and GROUPS[word] in SUCCESS for word in chosen)


def _named(load: float, shortest_s: float) -> str:
    return f"a load of {load:g} with jobs from {shortest_s:g} s"


def _ahead(parts: Parts) -> str:
    """The packed baselines that each of `fft` and `fft-ranked` does not beat on average."""
    sentences = []
    for ours in (FFT, RANKED):
        for text, metric in (("mean JCT", "jct_h"), ("mean FTF", "mean_ftf"), ("largest FTF", "max_ftf")):
            rivals = [
                (name, i + 1, parts[trace][name]["times_better"][ours][metric])
                for name in BASELINES
                for i, trace in enumerate(TRACES)
            ]
            lost = [f"{name} on trace {trace} ({v.mean:.2f}x)" for name, trace, v in rivals if v.mean <= 1.0]
            beaten = f"all but {', '.join(lost)}" if lost else "every baseline on both traces"
            sentences.append(f"In {text}, {ours} is ahead of {beaten}.")
    return f"**Comparison with packed baselines, on average.** {' '.join(sentences)}"


def _compensation(parts: Parts) -> str:
    def off(metric: str) -> str:
        rows = [parts[trace] for trace in TRACES]
        return " and ".join(f"{row[NO_COMPENSATION]['times_better'][FFT][metric].mean:.2f}" for row in rows)

    return (
        f"**Compensation.** Without it, the JCT of fft is {off('jct_h')} times and the largest FTF {off('max_ftf')} times that "
        "with it (traces 1 and 2)."
    )
