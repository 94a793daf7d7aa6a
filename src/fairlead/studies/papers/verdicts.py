"""How a measured number compares with a paper's, by one rule for all papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fairlead.studies.papers.spread import SeedSpread

FAR = 1.25  # a gain that exceeds the paper's by a quarter needs an explanation


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


_BELOW = (VerdictWord.PARTLY, VerdictWord.LESS, VerdictWord.MISSED, VerdictWord.DIFFERS)


@dataclass(frozen=True, slots=True)
class Verdict:
    word: VerdictWord
    every_seed: bool = True
    broken: tuple[str, ...] = ()  # promises, by name

    @property
    def is_below(self) -> bool:
        """Whether the paper's number was not reached everywhere."""
        return self.word in _BELOW

    def __str__(self) -> str:
        seeds = "" if self.every_seed else ", not on every seed"
        return f"{self.word}{seeds}{': ' if self.broken else ''}{', '.join(self.broken)}"


def gain(ours: Sequence[SeedSpread], paper: float | Sequence[float], nothing: float = 1.0) -> Verdict:
    """The verdict on a number that should be large; `nothing` is no gain: 1 for a ratio, 0 for a percentage.

    `paper` is one number, or one for every column.
    """
    claimed = [paper] * len(ours) if isinstance(paper, int | float) else list(paper)
    pairs = list(zip(ours, claimed, strict=True))
    if any(values.mean <= nothing for values in ours):
        return Verdict(VerdictWord.MISSED)
    every_seed = all(values.low > nothing for values in ours)
    reached = [values.mean >= p for values, p in pairs]
    if not all(reached):
        return Verdict(VerdictWord.PARTLY if any(reached) else VerdictWord.LESS, every_seed)
    far = all(_far(values.mean, p, nothing) for values, p in pairs)
    return Verdict(VerdictWord.MORE if far else VerdictWord.REACHED, every_seed)


def up_to(ours: Sequence[SeedSpread], paper: float, nothing: float = 1.0) -> Verdict:
    """The verdict on the paper's best gain, which is compared with our best seed in any column."""
    best = max(values.high for values in ours)
    if best >= paper:
        return Verdict(VerdictWord.MORE if _far(best, paper, nothing) else VerdictWord.REACHED)
    some_gain = any(values.mean > nothing for values in ours)
    return Verdict(VerdictWord.LESS if some_gain else VerdictWord.MISSED)


def at_most(ours: Sequence[SeedSpread], limit: float) -> Verdict:
    return Verdict(VerdictWord.HOLDS if all(values.mean <= limit for values in ours) else VerdictWord.MISSED)


def alike(ours: Sequence[SeedSpread], paper: float, within: float) -> Verdict:
    """The verdict on a number that is neither good nor bad, such as a baseline's."""
    near = all(abs(values.mean - paper) <= within for values in ours)
    return Verdict(VerdictWord.ALIKE if near else VerdictWord.DIFFERS)


def why(verdict: Verdict | None, if_below: str, if_above: str = "") -> str:
    """The sentence that goes with a verdict."""
    if verdict is None:
        return ""
    return if_below if verdict.is_below else if_above if verdict.word is VerdictWord.MORE else ""


def _far(value: float, paper: float, nothing: float) -> bool:
    return paper > nothing and value - nothing > FAR * (paper - nothing)
