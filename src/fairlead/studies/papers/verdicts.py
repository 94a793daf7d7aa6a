"""How a measured number compares with a paper's, by one rule for all papers (docs/decisions/0147)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fairlead.studies.papers.spread import SeedSpread

FAR = 1.25  # a gain that exceeds the paper's by a quarter needs an explanation; one short by the same factor is alike


class VerdictWord(StrEnum):
    REACHED = "reached"
    MORE = "more"
    PARTLY = "in part"
    LESS = "less"
    MISSED = "missed"
    HOLDS = "holds"
    ALIKE = "alike"
    DIFFERS = "differs"
    MEASURED = "measured"  # for a theorem, which no number proves


class VerdictGroup(StrEnum):
    """What a verdict counts as on the page."""

    REACHED = "reached"
    ALIKE = "alike"
    LESS = "less"
    MISSED = "missed"


GROUPS = {
    VerdictWord.REACHED: VerdictGroup.REACHED,
    VerdictWord.MORE: VerdictGroup.REACHED,
    VerdictWord.HOLDS: VerdictGroup.REACHED,
    VerdictWord.ALIKE: VerdictGroup.ALIKE,
    VerdictWord.PARTLY: VerdictGroup.LESS,
    VerdictWord.LESS: VerdictGroup.LESS,
    VerdictWord.MISSED: VerdictGroup.MISSED,
    VerdictWord.DIFFERS: VerdictGroup.MISSED,
}
SUCCESS = (VerdictGroup.REACHED, VerdictGroup.ALIKE)
# The reading of a claim that counts if the paper leaves several open: the one that is closest to the paper's number.
CLOSEST_FIRST = (
    *(VerdictWord.HOLDS, VerdictWord.REACHED, VerdictWord.ALIKE, VerdictWord.MORE),
    *(VerdictWord.PARTLY, VerdictWord.LESS, VerdictWord.DIFFERS, VerdictWord.MISSED),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    word: VerdictWord
    every_seed: bool = True
    broken: tuple[str, ...] = ()  # promises, by name
    against: tuple[tuple[str, VerdictWord], ...] = ()  # each candidate for an unclear baseline, by name

    @property
    def group(self) -> VerdictGroup | None:
        """What the verdict counts as; None for a theorem, which is not judged by a number."""
        return GROUPS.get(self.word)

    @property
    def is_success(self) -> bool:
        return self.group in SUCCESS

    @property
    def is_below(self) -> bool:
        """Whether the paper's number was not reached everywhere."""
        return self.group in (VerdictGroup.LESS, VerdictGroup.MISSED)

    @property
    def is_contested(self) -> bool:
        """Whether the claim succeeds against some candidates for its baseline and not against others."""
        return self.is_success and any(GROUPS[word] not in SUCCESS for _, word in self.against)

    def __str__(self) -> str:
        seeds = "" if self.every_seed else ", not on every seed"
        if len({word for _, word in self.against}) > 1:
            return "; ".join(self._by_word()) + seeds
        return f"{self.word}{seeds}{': ' if self.broken else ''}{', '.join(self.broken)}"

    def _by_word(self) -> list[str]:
        names: dict[VerdictWord, list[str]] = {}
        for name, word in sorted(self.against, key=lambda one: CLOSEST_FIRST.index(one[1])):
            names.setdefault(word, []).append(name)
        return [f"{word} ({', '.join(of_word)})" for word, of_word in names.items()]


def gain(ours: Sequence[SeedSpread], paper: float | Sequence[float], nothing: float = 1.0) -> Verdict:
    """The verdict on a number that should be large in all columns; `nothing` is no gain: 1 for a ratio, 0 for a percentage.

    `paper` is one number, or one for every column.
    """
    claimed = [paper] * len(ours) if isinstance(paper, int | float) else list(paper)
    words = [_gain(values.mean, p, nothing) for values, p in zip(ours, claimed, strict=True)]
    if VerdictWord.MISSED in words:
        return Verdict(VerdictWord.MISSED)
    return Verdict(_over_columns(words), every_seed=all(values.low > nothing for values in ours))


def up_to(ours: Sequence[SeedSpread], paper: float, nothing: float = 1.0) -> Verdict:
    """The verdict on the paper's best gain, which is compared with our best seed in any column."""
    word = _gain(max(values.high for values in ours), paper, nothing)
    some_gain = any(values.mean > nothing for values in ours)
    return Verdict(VerdictWord.MISSED if word is VerdictWord.LESS and not some_gain else word)


def at_most(ours: Sequence[SeedSpread], limit: float) -> Verdict:
    """The verdict on a limit for an average."""
    return Verdict(VerdictWord.HOLDS if all(values.mean <= limit for values in ours) else VerdictWord.MISSED)


def never_above(ours: Sequence[SeedSpread], limit: float) -> Verdict:
    """The verdict on "never", "always" and "every": the worst seed of the worst column decides."""
    return Verdict(VerdictWord.HOLDS if all(values.high <= limit for values in ours) else VerdictWord.MISSED)


def alike(ours: Sequence[SeedSpread], paper: float, within: float) -> Verdict:
    """The verdict on a number that is neither good nor bad, such as a baseline's."""
    near = all(abs(values.mean - paper) <= within for values in ours)
    return Verdict(VerdictWord.ALIKE if near else VerdictWord.DIFFERS)


def against(candidates: Mapping[str, Verdict]) -> Verdict:
    """The verdict on a claim whose baseline the paper leaves open: each candidate is judged, the closest one counts."""
    best = min(candidates.values(), key=lambda verdict: CLOSEST_FIRST.index(verdict.word))
    return replace(best, against=tuple((name, verdict.word) for name, verdict in candidates.items()))


def why(verdict: Verdict | None, if_below: str, if_above: str = "") -> str:
    """The sentence that goes with a verdict."""
    if verdict is None:
        return ""
    return if_below if verdict.is_below else if_above if verdict.word is VerdictWord.MORE else ""


def _gain(value: float, paper: float, nothing: float) -> VerdictWord:
    if value <= nothing:
        return VerdictWord.MISSED
    if value >= paper:
        far = paper > nothing and value - nothing > FAR * (paper - nothing)
        return VerdictWord.MORE if far else VerdictWord.REACHED
    return VerdictWord.ALIKE if FAR * (value - nothing) >= paper - nothing else VerdictWord.LESS


def _over_columns(words: Sequence[VerdictWord]) -> VerdictWord:
    """One word for several settings, all of which the claim is about."""
    if all(word is VerdictWord.MORE for word in words):
        return VerdictWord.MORE
    succeeded = [GROUPS[word] in SUCCESS for word in words]
    if all(succeeded):
        return VerdictWord.ALIKE if VerdictWord.ALIKE in words else VerdictWord.REACHED
    return VerdictWord.PARTLY if any(succeeded) else VerdictWord.LESS
