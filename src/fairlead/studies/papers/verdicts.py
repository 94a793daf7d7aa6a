"""How a measured number stands to a paper's, by one rule for all papers."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.studies.papers.spread import SeedSpread

REACHED = "reached"
MORE = "more"
PARTLY = "in part"
LESS = "less"
MISSED = "missed"
KEPT = "holds"
ALIKE = "alike"
DIFFERS = "differs"
MEASURED = "measured"  # of a theorem, which no number proves
NOT_EVERY_SEED = ", not on every seed"
FAR = 1.25  # beyond the paper's gain by a quarter is worth a sentence


def gain(ours: Sequence[SeedSpread], paper: float | Sequence[float], nothing: float = 1.0) -> str:
    """Of something that is better the larger it is; `nothing` is no gain: 1 for a ratio, 0 for a percentage.

    `paper` is one number, or one for every column.
    """
    wanted = [paper] * len(ours) if isinstance(paper, int | float) else list(paper)
    pairs = list(zip(ours, wanted, strict=True))
    if any(values.mean <= nothing for values in ours):
        return MISSED
    reached = [values.mean >= p for values, p in pairs]
    some_seed = NOT_EVERY_SEED if any(values.low <= nothing for values in ours) else ""
    if all(reached):
        return (MORE if all(_far(values.mean, p, nothing) for values, p in pairs) else REACHED) + some_seed
    return (PARTLY if any(reached) else LESS) + some_seed


def up_to(ours: Sequence[SeedSpread], paper: float, nothing: float = 1.0) -> str:
    """Of a gain that the paper saw at best: our best seed in any column is held against it."""
    best = max(values.high for values in ours)
    if best >= paper:
        return MORE if _far(best, paper, nothing) else REACHED
    return LESS if any(values.mean > nothing for values in ours) else MISSED


def at_most(ours: Sequence[SeedSpread], limit: float) -> str:
    return KEPT if all(values.mean <= limit for values in ours) else MISSED


def alike(ours: Sequence[SeedSpread], paper: float, within: float) -> str:
    """Of a number that is neither good nor bad, such as a baseline's."""
    return ALIKE if all(abs(values.mean - paper) <= within for values in ours) else DIFFERS


def below(verdict: str) -> bool:
    """Whether the paper's number was not reached everywhere."""
    return verdict.startswith((PARTLY, LESS, MISSED, DIFFERS))


def above(verdict: str) -> bool:
    return verdict.startswith(MORE)


def why(verdict: str, if_below: str, if_above: str = "") -> str:
    """The sentence that goes with a verdict."""
    return if_below if below(verdict) else if_above if above(verdict) else ""


def word_of(verdict: str) -> str:
    """Without what is added to it: seeds, names."""
    return verdict.partition(",")[0].partition(":")[0]


def _far(value: float, paper: float, nothing: float) -> bool:
    return paper > nothing and value - nothing > FAR * (paper - nothing)
