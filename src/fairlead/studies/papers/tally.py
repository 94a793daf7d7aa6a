"""How many claims of each paper are reached, alike, less or missed: now, and on the page before it."""

from __future__ import annotations

from collections import Counter
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


def tally_row(study: Study) -> list[str]:
    """The cells under `HEAD`."""
    now = tally(study)
    share = f"{now.successes} of {now.claims} ({100 * now.successes / now.claims:.0f} %)" if now.claims else "-"
    contested = sum(verdict.is_contested for _, verdict in study.judged)
    unexplained = sum(claim.is_unexplained for claim, _ in study.judged)
    before = [str(counts[study.name]) for counts in (BEFORE, BEFORE_BY_THESE_RULES)]
    return [study.paper, *before, str(now), share, str(contested), str(unexplained)]
