"""Why a number of ours differs from its paper's: a cause, and the column of the table in which it is switched off."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.studies.papers.spread import SeedSpread

EXPLAINS = 0.5  # the part of a difference that a cause must account for to explain it
WHOLE = 0.995
NOTHING = 0.1  # a cause that accounts for less is refuted


@dataclass(frozen=True, slots=True)
class TestedCause:
    """A possible reason, tested: `closes` is the part of the difference that is gone where the cause is switched off.

    That is in a column of the table, or in another of its rows (`place`).
    """

    text: str  # a sentence without its full stop
    column: str
    closes: float
    place: str = "column"

    @property
    def explains(self) -> bool:
        return self.closes >= EXPLAINS

    @property
    def sentence(self) -> str:
        return f'{self.text}. Switched off ({self.place} "{self.column}"), {self._effect}.'

    @property
    def _effect(self) -> str:
        if self.closes >= WHOLE:
            return "the difference is gone, so this explains it"
        if self.closes < NOTHING:
            return "the difference is not smaller, so this is not the cause"
        part = f"{100 * self.closes:.0f} % of the difference is gone"
        return f"{part}, so this explains most of it" if self.explains else f"{part}, so this is a small part of it"


def cause_of(text: str, column: str, ours: SeedSpread, without: SeedSpread, paper: float) -> TestedCause:
    """A cause with its test: `ours` differs from `paper`, and `without` is our number with the cause switched off."""
    difference = paper - ours.mean
    return TestedCause(text, column, (without.mean - ours.mean) / difference if difference else 0.0)
