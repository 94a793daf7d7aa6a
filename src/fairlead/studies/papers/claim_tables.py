"""A study's measurements next to its paper's claims: the data behind terminal tables, JSON and the page."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from fairlead.studies.papers.causes import TestedCause
from fairlead.studies.papers.spread import SeedSpread
from fairlead.studies.papers.verdicts import Verdict, VerdictWord


@dataclass(frozen=True)
class Claim:
    """One row: the claim, the paper's number, ours in every column of the table, and why they differ.

    A column may be a setting, a candidate for the baseline, or ours with a cause switched off; the study that builds the
    claim knows which and judges it accordingly.
    """

    claim: str
    paper: str  # empty if the paper states no number
    ours: tuple[str, ...]
    why: str = ""  # empty if they agree or there is nothing to compare
    verdict: Verdict | None = None  # None if the paper states no number
    causes: tuple[TestedCause, ...] = ()  # of the difference, each tested in a column of the table

    @property
    def sentences(self) -> tuple[str, ...]:
        return (*([self.why] if self.why else []), *(cause.sentence for cause in self.causes))

    @property
    def is_unexplained(self) -> bool:
        """Whether the paper's number is not reached and no cause that was tested accounts for it."""
        return self.verdict is not None and self.verdict.is_below and not any(cause.explains for cause in self.causes)

    def to_json(self) -> dict[str, Any]:
        causes = [{**asdict(cause), "explains": cause.explains} for cause in self.causes]
        return {**asdict(self), "verdict": "" if self.verdict is None else str(self.verdict), "causes": causes}


@dataclass(frozen=True)
class Table:
    title: str
    seeds: str
    columns: tuple[str, ...]  # of `ours`
    claims: tuple[Claim, ...]

    def __post_init__(self) -> None:
        assert all(len(claim.ours) == len(self.columns) for claim in self.claims), self.title
        shown = {"column": self.columns, "row": tuple(claim.claim for claim in self.claims)}
        assert all(cause.column in shown[cause.place] for claim in self.claims for cause in claim.causes), self.title

    @property
    def head(self) -> list[str]:
        if not self.has_paper:
            return ["", *self.columns]
        return ["claim", "paper", *self.columns, *(["verdict"] if self.has_verdict else [])]

    @property
    def rows(self) -> list[list[str]]:
        """The cells under `head`; there is no column for a paper that states nothing in the whole table."""
        return [self._row(claim) for claim in self.claims]

    @property
    def sentences(self) -> dict[str, list[str]]:
        """The reasons why ours differ, each with its claims."""
        claims_of: dict[str, list[str]] = {}
        for claim in self.claims:
            for sentence in claim.sentences:
                claims_of.setdefault(sentence, []).append(claim.claim)
        return claims_of

    def to_json(self) -> dict[str, Any]:
        claims = [claim.to_json() for claim in self.claims]
        return {"title": self.title, "seeds": self.seeds, "columns": self.columns, "claims": claims}

    @property
    def has_paper(self) -> bool:
        return any(claim.paper for claim in self.claims)

    @property
    def has_verdict(self) -> bool:
        return any(claim.verdict for claim in self.claims)

    def _row(self, claim: Claim) -> list[str]:
        if not self.has_paper:
            return [claim.claim, *claim.ours]
        verdict = ["-" if claim.verdict is None else str(claim.verdict)] if self.has_verdict else []
        return [claim.claim, claim.paper or "-", *claim.ours, *verdict]


@dataclass(frozen=True)
class Study:
    name: str  # as in `fairlead reproduce NAME`
    paper: str
    quick: bool
    world: str  # what was run, and which values are ours because the paper does not state them
    reading: str  # how to read the numbers, briefly
    tables: tuple[Table, ...]
    remarks: tuple[str, ...] = ()  # paragraphs whose numbers are from earlier full runs
    findings: tuple[str, ...] = ()  # paragraphs whose numbers are from this run
    limits: tuple[str, ...] = ()  # what is missing from the paper, and why
    made: str = ""  # the code that measured it, and the time that it took

    @property
    def command(self) -> str:
        return f"fairlead reproduce {self.name}{' --quick' if self.quick else ''}"

    @property
    def judged(self) -> list[tuple[Claim, Verdict]]:
        claims = [claim for table in self.tables for claim in table.claims]
        return [(claim, claim.verdict) for claim in claims if claim.verdict is not None]

    @property
    def verdict(self) -> str:
        """The number of claims for each verdict, and the names of missed claims; empty if nothing was judged."""
        if not self.judged:
            return ""
        counted = Counter(verdict.word for _, verdict in self.judged)
        missed = [_missed(claim, verdict) for claim, verdict in self.judged if verdict.word is VerdictWord.MISSED]
        counts = "; ".join(f"{word} {count}" for word, count in counted.most_common())
        return f"**{len(self.judged)} claims:** {counts}." + (f" Missed: {'; '.join(missed)}." if missed else "")


def _missed(claim: Claim, verdict: Verdict) -> str:
    return f"{claim.claim} ({', '.join(verdict.broken)})" if verdict.broken else claim.claim


def number(values: SeedSpread, digits: int = 2, unit: str = "") -> str:
    """The mean with its unit, then the smallest and the largest."""
    mean, low, high = (_plain(value, digits) for value in (values.mean, values.low, values.high))
    return f"{mean}{unit} ({low}..{high})"


def percent(values: SeedSpread, digits: int = 1, *, signed: bool = True) -> str:
    sign = "+" if signed else ""
    mean, low, high = (_plain(100 * value, digits, sign) for value in (values.mean, values.low, values.high))
    return f"{mean} % ({low}..{high})"


def _plain(value: float, digits: int, sign: str = "") -> str:
    """A number without a negative zero."""
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"


def seeds_of(seeds: range) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}-{seeds[-1]}"
