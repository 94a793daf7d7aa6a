"""Hops' claims next to the measurements of its experiment, with sentences that explain the differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fairlead.studies.papers import verdicts
from fairlead.studies.papers.causes import TestedCause, cause_of
from fairlead.studies.papers.claim_tables import Claim, Study, Table, number, percent, seeds_of
from fairlead.studies.papers.hops.experiment import (
    BY_LATENCY_RATIO,
    ELASTIC,
    FORMS,
    HOPS,
    ONE_GPU,
    OTHER_JOBS,
    OURS,
    PAPER,
    QUICK,
    RIVALS,
    SLOW_HOPS,
    WHOLE_NODES,
    HopsScale,
    Part,
)
from fairlead.studies.papers.hops.jobs import CALIBRATION
from fairlead.studies.papers.spread import SeedSpread, spread
from fairlead.studies.papers.verdicts import Verdict, VerdictWord

WORLD = """\
The servers and class proportions are the paper's; speeds are relative to the 1080Ti; rounds take 540 s, restarts 30 s,
and servers have hidden speeds of 0.85-1.05 (sensing: 0.75-1.05, on a half-empty cluster, so that there is a choice of
servers). Hops learns the speeds of servers; Sia and Gavel know types only; Gavel gets the median width. The paper does not
state how long and how wide the jobs of a class are, nor how fast its network is. These were fitted to the paper's numbers
of Gavel (makespan, JCT, waiting, largest latency ratio and FTF) on seeds that are not used otherwise, and not to any number of
Hops; the tables on calibration show the candidates. Sia's numbers were not fitted."""
READING = """\
Gains are computed for each seed. Idle GPUs are counted once per round, after its plans, and only while a job waits. LR is
the latency ratio, with the mean of a job's allowed widths, and FTF follows Sia's rule, both as in the paper. `hops` is the
paper's system, `hops-late` ours (docs/decisions/0042-hops-serves-the-late.md); both have columns, and
`hops` is judged. Several plans per round are an idea of Hops, so Sia and Gavel decide once per round. The paper does not
describe how it places their gangs: packed on as few nodes as possible, scattered without regard to nodes, or on one node only
(a gang waits until it fits on the fewest nodes that can hold it). Sia's own paper gives a gang that is wider than a node
whole nodes; this is a candidate for Sia, and for Gavel a test of an explanation. The paper's baselines have queues in order of
latency ratios. Our Sia uses this order where nodes do not suffice; "by latency ratio" is a candidate for Gavel, in which these
ratios are the weights of its program. "Refilled" also gives the packed baselines decisions inside
rounds, like Hops. "Slow network" is a world in which gangs on several nodes lose more, with a scattered baseline. These two
are not candidates for the paper's baseline; they test explanations. So do two columns with other jobs: "one GPU allowed", Hops
against Sia on whole nodes, where every job may also run on a single GPU, and "elastic gangs", Hops against packed baselines,
where the jobs that have 16 GPUs here may have 2 to 16, and have 8 under Gavel. "Less a round" does not count the first 540 s
for which a job waits (docs/decisions/0341-hops-numbers-as-its-paper-computes-them.md)."""

NUMBERS = {
    "makespan_h": "makespan, h",
    "jct_h": "JCT, h",
    "wait_h": "waiting, h",
    "max_lr": "max LR",
    "later_lr": "max LR, less a round",
    "idle": "idle GPUs",
    "max_ftf": "max FTF",
    "decision_s": "slowest decision, CPU s",
}
FORM_DISTANCES = "how far each form of a baseline is from the paper's numbers of it"
ALL_FORMS = (*FORMS, WHOLE_NODES, BY_LATENCY_RATIO)
REFILLED, SLOW_NETWORK = "refilled", "slow network"  # for comparison; the paper's baselines decide once per round
FITTED = {
    "64 GPUs": ("makespan_h", "jct_h", "wait_h", "max_lr"),
    "512 GPUs": ("makespan_h", "jct_h", "wait_h", "max_lr", "max_ftf"),
}
IDLE_LIMIT = 1.0
PAPER_LR = {"latency-ratio": "3.2", "las": "above 80", "sjf": "above 80", "srtf": "above 80"}

REMARKS = (
    """\
**Sensing servers.** When all GPUs are busy, sensing cannot gain anything: servers are equally slow for all jobs, so the
sum of speeds does not depend on which job is where. It gains when there is a choice of servers (see the table on
sensing).""",
    """\
**Starvation** at a load of 1.2 for 48 h is a test, not part of this command: all jobs end. The largest ratio of a class is
not within 3 times its median over all 48 h, because no job waits on the first day and the small classes contain jobs that
are shorter than a round. It is within 3 times the median of the second day, not counting the round of arrival; that is
what the test checks.""",
    """\
**The weights of `hops-late`,** and what else was tried, are described in docs/decisions/0042-hops-serves-the-late.md, with a
trace that we did not generate.""",
)


@dataclass(frozen=True)
class GainMetric:
    """A number by which Hops is compared, how its gain is computed and shown, and the value that means no gain."""

    key: str
    claim: str
    gain: Callable[[float, float], float]
    shown: Callable[[SeedSpread], str]
    nothing: float


def _less(hops: float, other: float) -> float:
    return 1.0 - hops / other if other > 0 else 0.0


def _over(hops: float, other: float) -> float:
    """The ratio of the other to Hops; less than a hundredth counts as a hundredth."""
    return max(other, 0.01) / max(hops, 0.01)


METRICS = (
    *(
        GainMetric(key, f"{text}, shorter by", _less, percent, 0.0)
        for key, text in (("makespan_h", "makespan"), ("jct_h", "JCT"), ("wait_h", "waiting"))
    ),
    *(
        GainMetric(key, f"{text}, lower by a factor of", _over, number, 1.0)
        for key, text in (("max_lr", "max LR"), ("max_ftf", "max FTF"), ("idle", "idle GPUs"))
    ),
)


def study(scale: HopsScale, parts: dict[str, Part]) -> Study:
    tables = []
    for name, part in _joined(parts).items():
        title, seeds = _title(name, scale), seeds_of(_seeds(name, scale))
        if name.endswith("calibration"):
            tables.append(_calibration(name, part))
            continue
        if name in PAPER:
            fewer = {
                f'"{jobs}"': len(part[f"{HOPS}, {jobs}"]["jct_h"]) for jobs in OTHER_JOBS if f"{HOPS}, {jobs}" in part
            }
            first = f"{seeds}; {' and '.join(fewer)}: the first {max(fewer.values())}" if fewer else seeds
            tables += [_against(f"{title}: Hops against {rival}", first, part, rival, PAPER[name]) for rival in RIVALS]
            tables.append(_form_distances(f"{title}: {FORM_DISTANCES}", seeds, part, PAPER[name]))
        tables.append(Table(title, seeds, tuple(part), _numbers(name, part)))
    return Study("hops", "Hops (SoCC 2024)", scale == QUICK, WORLD, READING, tuple(tables), REMARKS)


def _joined(parts: Mapping[str, Part]) -> dict[str, Part]:
    """The parts, with the forms that were measured as parts of their own next to the others."""
    joined: dict[str, Part] = {}
    for name, part in parts.items():
        setting, _, form = name.partition(", ")
        if form in (WHOLE_NODES, BY_LATENCY_RATIO, *OTHER_JOBS):
            joined[setting] = {**joined.get(setting, {}), **part}
        else:
            joined[name] = {**part, **joined.get(name, {})}
    return joined


def _form_distances(title: str, seeds: str, part: Part, paper: Mapping[str, Mapping[str, float]]) -> Table:
    """How far each form of a baseline is from the paper's numbers of that baseline; Hops does not enter."""
    forms = [form for form in ALL_FORMS if any(f"{rival}, {form}" in part for rival in RIVALS)]
    rows = []
    for rival in RIVALS:
        runs = {form: part.get(f"{rival}, {form}") for form in forms}
        cells = (number(_distance(run, paper[rival], tuple(paper[rival]))) if run else "-" for run in runs.values())
        rows.append(Claim(rival, "", tuple(cells)))
    return Table(title, f"{seeds}; mean of |ln(ours / paper)|", tuple(forms), tuple(rows))


# ---- Hops compared with its baselines --------------------------------------------------------------------------------


def _against(title: str, seeds: str, part: Part, rival: str, paper: Mapping[str, Mapping[str, float]]) -> Table:
    forms = _forms(part, rival)
    columns = (*forms, *(_ours(form) for form in forms if form != SLOW_NETWORK), *_other_jobs(part, rival))
    return Table(title, seeds, columns, tuple(_gain(part, rival, metric, paper) for metric in METRICS))


def _forms(part: Part, rival: str) -> tuple[str, ...]:
    return tuple(form for form in ALL_FORMS if f"{rival}, {form}" in part)


def _other_jobs(part: Part, rival: str) -> tuple[str, ...]:
    return tuple(jobs for jobs in OTHER_JOBS if f"{rival}, {jobs}" in part)


def _ours(form: str) -> str:
    return f"{OURS} against {form}"


def _gain(part: Part, rival: str, metric: GainMetric, paper: Mapping[str, Mapping[str, float]]) -> Claim:
    """One line; it has no verdict if the paper does not state the number."""
    system = {SLOW_NETWORK: SLOW_HOPS}
    ours = {form: _by_seed(part, system.get(form, HOPS), f"{rival}, {form}", metric) for form in _forms(part, rival)}
    late = {_ours(form): _by_seed(part, OURS, f"{rival}, {form}", metric) for form in ours if form != SLOW_NETWORK}
    for jobs in _other_jobs(part, rival):
        late[jobs] = _by_seed(part, f"{HOPS}, {jobs}", f"{rival}, {jobs}", metric)
    cells = tuple(metric.shown(values) for values in (*ours.values(), *late.values()))
    if metric.key not in paper[HOPS]:
        return Claim(metric.claim, "", cells)
    claimed = metric.gain(paper[HOPS][metric.key], paper[rival][metric.key])
    text = f"{100 * claimed:.1f} %" if metric.nothing == 0.0 else f"{claimed:.1f}"
    judged = {
        form: verdicts.gain([ours[form]], claimed, metric.nothing)
        for form in ours
        if form not in (REFILLED, SLOW_NETWORK) and (form != WHOLE_NODES or rival == "sia")
    }
    verdict = verdicts.against(judged)
    causes = _causes({**ours, **late}, claimed) if verdict.is_below else ()
    return Claim(metric.claim, text, cells, "", verdict, causes)


def _by_seed(part: Part, system: str, rival: str, metric: GainMetric) -> SeedSpread:
    pairs = zip(part[system][metric.key], part[rival][metric.key], strict=True)
    return spread([metric.gain(*pair) for pair in pairs])


def _causes(ours: Mapping[str, SeedSpread], claimed: float) -> tuple[TestedCause, ...]:
    """The possible causes, the one that accounts for most first."""
    texts = {
        "scattered": "our packed baseline is stronger than the paper's may have been",
        SLOW_NETWORK: "nodes matter too little: a gang on several nodes keeps 60 to 95 % of its rate here",
        "one node": "our packed baseline may spread a gang rather than wait",
        WHOLE_NODES: "our packed baseline puts other jobs next to gangs that are wider than a node",
        ELASTIC: "the jobs that end last have 16 GPUs under every policy",
        BY_LATENCY_RATIO: "our baseline does not look at latency ratios",
        ONE_GPU: "our baseline packs too well, and the narrowest waiting jobs are wider than the last fragments",
        _ours("scattered"): "the printed weights leave late jobs behind faster ones",
    }
    causes = [
        cause_of(text, column, ours["packed"], ours[column], claimed)
        for column, text in texts.items()
        if column in ours
    ]
    return tuple(sorted(causes, key=lambda cause: -cause.closes))


# ---- all numbers -----------------------------------------------------------------------------------------------------


def _numbers(name: str, part: Part) -> tuple[Claim, ...]:
    """All numbers of a part, with one column for each policy."""
    rows = []
    for key, text in NUMBERS.items():
        ours = {variant: spread(values[key]) for variant, values in part.items()}
        cells = tuple(number(values) for values in ours.values())
        if name == "512 GPUs" and key == "idle":
            rows.append(_idle(text, cells, ours))
        elif name.endswith("priorities") and key == "max_lr":
            rows.append(_priorities(text, cells, part))
        else:
            rows.append(Claim(text, "", cells))
    return tuple(rows)


def _idle(text: str, cells: tuple[str, ...], ours: Mapping[str, SeedSpread]) -> Claim:
    verdict = verdicts.at_most([ours[HOPS]], IDLE_LIMIT)
    causes: tuple[TestedCause, ...] = ()
    if verdict.is_below:
        texts = {
            OURS: "GPUs that fit no waiting job stay idle, because the printed program does not widen jobs that run",
            f"{HOPS}, {ELASTIC}": "jobs that need 16 GPUs leave gaps which no waiting job fits",
        }
        causes = tuple(
            cause_of(cause, column, ours[HOPS], ours[column], IDLE_LIMIT)
            for column, cause in texts.items()
            if column in ours
        )
    return Claim(text, f"hops under {IDLE_LIMIT:g}", cells, "", verdict, causes)


def _priorities(text: str, cells: tuple[str, ...], part: Part) -> Claim:
    above = _above_others(part, "max_lr")
    verdict = Verdict(VerdictWord.HOLDS if above < 0 else VerdictWord.MISSED)
    numbers = ", ".join(f"{variant} {PAPER_LR[variant]}" for variant in part if variant in PAPER_LR)
    causes: tuple[TestedCause, ...] = ()
    if verdict.is_below:
        cause = "a job that is shorter than a round waits for the next one, whatever the priority"
        closes = 1.0 - _above_others(part, "later_lr") / above if above else 0.0
        causes = (TestedCause(cause, NUMBERS["later_lr"], closes, "row"),)
    return Claim(text, f"smallest by latency ratio ({numbers})", cells, "", verdict, causes)


def _above_others(part: Part, key: str) -> float:
    """How far the priority by latency ratio is above the smallest of the others in the paper."""
    means = {variant: float(np.mean(part[variant][key])) for variant in part if variant in PAPER_LR}
    own = means.pop("latency-ratio")
    return own - min(means.values())


def _calibration(name: str, part: Part) -> Table:
    """Gavel's numbers for each candidate, and how far they are from the paper's."""
    setting = name.removesuffix(", calibration")
    paper, keys = PAPER[setting]["gavel"], FITTED[setting]
    rows = [
        Claim(candidate, "", (*(number(spread(values[key])) for key in keys), number(_distance(values, paper, keys))))
        for candidate, values in part.items()
    ]
    columns = (*(f"{NUMBERS[key]} (paper {paper[key]:g})" for key in keys), "distance")
    title = f"{setting}: Gavel for each candidate of the jobs, mean of packed and scattered gangs"
    return Table(title, f"{seeds_of(CALIBRATION[setting])}; distance: mean of |ln(ours / paper)|", columns, tuple(rows))


def _distance(values: Mapping[str, list[float]], paper: Mapping[str, float], keys: tuple[str, ...]) -> SeedSpread:
    by_key = [np.abs(np.log(np.maximum(values[key], 1e-3) / paper[key])) for key in keys]
    return spread(np.mean(by_key, axis=0))


def _title(name: str, scale: HopsScale) -> str:
    if name.startswith("64 GPUs"):
        return name.replace("64 GPUs", "64 GPUs, 25 jobs, 10 jobs/h")
    if name.endswith("sensing"):
        return f"{name}, 150 jobs, 20 jobs/h"
    jobs = name.replace("512 GPUs", f"512 GPUs, {scale.large_jobs} jobs")
    return jobs if "jobs/h" in name else f"{jobs}, 100 jobs/h"


def _seeds(name: str, scale: HopsScale) -> range:
    return scale.small if name.startswith("64 GPUs") else scale.large
