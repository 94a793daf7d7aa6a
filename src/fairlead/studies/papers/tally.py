"""How many claims of each paper are reached, alike, less or missed: now, and on the page before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.studies.papers.claim_tables import Study
from fairlead.studies.papers.verdicts import VerdictGroup


@dataclass(frozen=True, slots=True)
class ClaimCounts:
    reached: int
    alike: int
    less: int
    missed: int

    @property
    def claims(self) -> int:
        return self.reached + self.alike + self.less + self.missed

    @property
    def successes(self) -> int:
        return self.reached + self.alike

    def __str__(self) -> str:
        return f"{self.reached} / {self.alike} / {self.less} / {self.missed}"


# The page of version 0.1.0, sources ed015fd35c48 (OEF), 3018e5be4f1d (Hare), 52155cfa3655 (FFT) and cf0ebcb7be86 (Hops).
BEFORE = {
    "oef": ClaimCounts(2, 0, 6, 1),
    "hare": ClaimCounts(9, 3, 10, 2),
    "fft": ClaimCounts(10, 2, 13, 2),
    "hops": ClaimCounts(2, 0, 10, 1),
}
# The same measurements, judged by the rules of `verdicts` as they are now.
BEFORE_BY_THESE_RULES = {
    "oef": ClaimCounts(1, 0, 6, 2),
    "hare": ClaimCounts(9, 3, 10, 2),
    "fft": ClaimCounts(10, 3, 12, 2),
    "hops": ClaimCounts(2, 0, 10, 1),
}

AIM = 2 / 3  # of all claims with a number
HEAD = (
    "paper",
    "before",
    "before, by today's rules",
    "now",
    "reached or alike now",
    "of these, not against every candidate",
    "not explained",
)


def tally(study: Study) -> ClaimCounts:
    counted = Counter(verdict.group for _, verdict in study.judged)
    return ClaimCounts(*(counted[group] for group in VerdictGroup))


def summary(studies: Sequence[Study]) -> str:
    """How many claims of all papers succeed, next to our aim, and which differences are not explained."""
    counts = [tally(study) for study in studies]
    successes, claims = sum(one.successes for one in counts), sum(one.claims for one in counts)
    if not claims:
        return "No claim with a number was judged."
    aim = "at least" if successes >= AIM * claims else "less than"
    open_claims = [
        f"{study.paper}, {table.title}: {claim.claim}"
        for study in studies
        for table in study.tables
        for claim in table.claims
        if claim.is_unexplained
    ]
    total = f"Together {successes} of {claims} claims ({100 * successes / claims:.0f} %) are reached or alike"
    left = "; ".join(open_claims)
    unexplained = f"Not explained by any cause that was tested: {left}." if left else "Every difference is explained."
    return f"{total}, {aim} the two thirds that we aim at. {unexplained}"


def tally_row(study: Study) -> list[str]:
    """The cells under `HEAD`."""
    now = tally(study)
    share = f"{now.successes} of {now.claims} ({100 * now.successes / now.claims:.0f} %)" if now.claims else "-"
    contested = sum(verdict.is_contested for _, verdict in study.judged)
    unexplained = sum(claim.is_unexplained for claim, _ in study.judged)
    before = [str(counts[study.name]) for counts in (BEFORE, BEFORE_BY_THESE_RULES)]
    return [study.paper, *before, str(now), share, str(contested), str(unexplained)]
