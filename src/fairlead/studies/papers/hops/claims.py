"""Hops' claims next to the measurements of its experiment, with sentences that explain the differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairlead.studies.papers import verdicts
from fairlead.studies.papers.claim_tables import Claim, Study, Table, number, percent, seeds_of
from fairlead.studies.papers.hops.experiment import FIRST_SEED, OURS, PAPER, QUICK, THREE, HopsScale, Part
from fairlead.studies.papers.spread import SeedSpread, spread
from fairlead.studies.papers.verdicts import Verdict, VerdictWord

WORLD = """\
The servers and class proportions are the paper's; speeds are relative to the 1080Ti; rounds take 540 s, restarts 30 s,
and servers have hidden speeds of 0.85-1.05 (sensing: 0.75-1.05, on a half-empty cluster, so that there is a choice of
servers). Both forms of Hops learn the speeds of servers; Sia and Gavel know types only; Gavel gets the median width. Restart cost and
packing are the same for all, and so is the refill inside rounds, except in columns marked "rounds only"."""
READING = """\
`hops` is the paper's system, `hops-late` has changes of our own (docs/decisions/0042-hops-serves-the-late.md). Gains are
computed for each seed, for hops-late over each baseline under the same rules. Idle GPUs are counted after every
decision that leaves a job waiting; LR is the latency ratio. The policy was tuned on seeds 0-2 only. The paper does not
state the lengths and widths of its jobs by class: ours are drawn at random, so compare gains, not hours."""

BASELINES = THREE[1:]
NUMBERS = {
    "makespan_h": "makespan, h",
    "jct_h": "JCT, h",
    "wait_h": "waiting, h",
    "max_lr": "max LR",
    "idle": "idle GPUs",
    "max_ftf": "max FTF",
    "decision_s": "slowest decision, CPU s",
}
SHORTER = {"makespan_h": "makespan", "jct_h": "JCT", "wait_h": "waiting"}
LOWER = {"max_lr": "max LR", "max_ftf": "max FTF", "idle": "idle GPUs"}
IDLE_LIMIT = 1.0
OUR_PACKING = (
    "our Sia and Gavel get the same packing and refill as hops-late; the paper does not mention that its versions do."
)
LONGEST_LAST = """\
the ratio of a long job grows slowly, so the longest jobs start last and end last; and """
WHY = {"makespan_h": LONGEST_LAST + OUR_PACKING}
LEFT_OVER = (
    "the remaining GPUs fit no waiting job; docs/decisions/0042-hops-serves-the-late.md examines single decisions."
)
PAPER_LR = {"latency-ratio": "3.2", "las": "above 80", "sjf": "above 80", "srtf": "above 80"}
FAR_LR = 80.0
WHY_LR = """\
a ratio of 80 needs a job of minutes that waits for hours, but these orders put jobs first that are short or have had
little service; we do not know how it came about in the paper."""

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
**Our choices where the paper gives no values:** lengths within a class, widths that grow with the class, the round, which
servers are slow. We chose lengths and widths with knowledge of results; this is the third version. Widths of 1-16 for
every class gave makespans of 42 h (an XL job on one GPU) and latency ratios dominated by jobs that last seconds; narrower
widths gave almost no waiting, and then hops-late and Sia are within 3 % in JCT at 64 GPUs. Its advantage therefore
depends on how crowded the cluster is, and the third version is the one whose waiting times at 512 GPUs are similar to the
paper's.""",
    """\
**The weights,** and what else was tried, are described in docs/decisions/0042-hops-serves-the-late.md, with a trace that we
did not generate.""",
)


def study(scale: HopsScale, parts: dict[str, Part]) -> Study:
    tables = []
    for name, part in parts.items():
        title, seeds = _title(name, scale), seeds_of(_seeds(name, scale))
        if set(THREE) <= set(part):
            tables.append(Table(f"{title}: hops-late against", seeds, BASELINES, _gains(part, PAPER.get(name))))
        tables.append(Table(title, seeds, tuple(part), _numbers(name, part)))
    return Study("hops", "Hops (SoCC 2024)", scale == QUICK, WORLD, READING, tuple(tables), REMARKS)


# ---- Hops compared with its baselines --------------------------------------------------------------------------------


def _gains(part: Part, paper: dict[str, dict[str, float]] | None) -> tuple[Claim, ...]:
    rows = [_gain(part, paper, key, f"{text}, shorter by", _less, percent, 0.0) for key, text in SHORTER.items()]
    rows += [
        _gain(part, paper, key, f"{text}, lower by a factor of", _over, number, 1.0) for key, text in LOWER.items()
    ]
    return tuple(rows)


def _gain(
    part: Part,
    paper: dict[str, dict[str, float]] | None,
    key: str,
    claim: str,
    gain: Callable[[float, float], float],
    shown: Callable[[SeedSpread], str],
    nothing: float,
) -> Claim:
    """One line for both baselines; it has no verdict if the paper does not state the number."""
    ours = [spread([gain(*pair) for pair in zip(part[OURS][key], part[one][key], strict=True)]) for one in BASELINES]
    cells = tuple(shown(values) for values in ours)
    if paper is None or key not in paper["hops"]:
        return Claim(claim, "", cells)
    claimed = [gain(paper["hops"][key], paper[one][key]) for one in BASELINES]
    numbers = ", ".join(f"{100 * value:.1f} %" if nothing == 0.0 else f"{value:.1f}" for value in claimed)
    verdict = verdicts.gain(ours, claimed, nothing)
    return Claim(claim, numbers, cells, verdicts.why(verdict, WHY.get(key, OUR_PACKING)), verdict)


def _less(hops: float, other: float) -> float:
    return 1.0 - hops / other if other > 0 else 0.0


def _over(hops: float, other: float) -> float:
    """The ratio of the other to Hops; less than a hundredth counts as a hundredth."""
    return max(other, 0.01) / max(hops, 0.01)


# ---- all numbers -----------------------------------------------------------------------------------------------------


def _numbers(name: str, part: Part) -> tuple[Claim, ...]:
    """All numbers of a part, with one column for each policy."""
    rows = []
    for key, text in NUMBERS.items():
        ours = {variant: spread(values[key]) for variant, values in part.items()}
        paper, why, verdict = _beside(name, key, ours)
        rows.append(Claim(text, paper, tuple(number(values) for values in ours.values()), why, verdict))
    return tuple(rows)


def _beside(name: str, key: str, ours: Mapping[str, SeedSpread]) -> tuple[str, str, Verdict | None]:
    """The paper's number, why ours differs, and the verdict; empty unless a single number is claimed."""
    if name == "512 GPUs" and key == "idle":
        verdict = verdicts.at_most([ours[OURS]], IDLE_LIMIT)
        return f"under {IDLE_LIMIT:g}", verdicts.why(verdict, LEFT_OVER), verdict
    if name.endswith("priorities") and key == "max_lr":
        theirs = {variant: ours[variant].mean for variant in ours if variant in PAPER_LR}
        smallest = min(theirs, key=theirs.__getitem__)
        verdict = Verdict(VerdictWord.HOLDS if smallest == "latency-ratio" else VerdictWord.MISSED)
        numbers = ", ".join(f"{variant} {PAPER_LR[variant]}" for variant in theirs)
        return f"smallest by latency ratio ({numbers})", WHY_LR if max(theirs.values()) < FAR_LR else "", verdict
    return "", "", None


def _title(name: str, scale: HopsScale) -> str:
    if name == "64 GPUs":
        return "64 GPUs, 25 jobs, 10 jobs/h"
    if name.endswith("sensing"):
        return f"{name}, 150 jobs, 20 jobs/h"
    jobs = name.replace("512 GPUs", f"512 GPUs, {scale.large_jobs} jobs")
    return jobs if "jobs/h" in name else f"{jobs}, 100 jobs/h"


def _seeds(name: str, scale: HopsScale) -> range:
    return range(FIRST_SEED, FIRST_SEED + (scale.small_seeds if name == "64 GPUs" else scale.large_seeds))
