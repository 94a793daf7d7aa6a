"""Claims with a column for every candidate for a baseline, and one for every cause of a difference that is switched off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.studies.papers import verdicts
from fairlead.studies.papers.causes import TestedCause
from fairlead.studies.papers.claim_tables import Claim, Table, number, percent
from fairlead.studies.papers.fft.runs import FFT
from fairlead.studies.papers.spread import SeedSpread
from fairlead.studies.papers.verdicts import FAR, Verdict

TIMES, PERCENT = "times", "percent"
GAIN, UP_TO, ALIKE, ABOVE_HALF = "gain", "up to", "alike", "above half"
NEAR = 1.0 - 1.0 / FAR  # of the paper's share of jobs or of changes, as for gains
SHOWN_CAUSES = 2  # of a claim, those that account for most

Parts = Mapping[str, Any]


@dataclass(frozen=True)
class ClaimColumn:
    """Numbers of one contender, in one or two settings. Without a cause it is a candidate for what the paper compared."""

    title: str
    of: str  # a contender: the baseline, or the policy that a share describes
    settings: tuple[str, ...]  # names of parts
    ours: str = FFT  # what a factor compares the baseline with
    ftf: str = ""  # ending of the FTF measure
    cause: str = ""  # of a difference between our numbers and the paper's, which is switched off here
    instead_of: str = ""  # the title of the column that has the cause


@dataclass(frozen=True)
class ClaimLine:
    """One claim. `wanted` is a number, or one for every setting."""

    claim: str
    paper: str
    metric: str
    judged: str
    wanted: float | tuple[float, ...]
    shown: str = TIMES
    columns: tuple[str, ...] = ()  # titles of the columns that it is about; empty: all
    settings: int | None = None  # how many of the settings it is about, from the first; None: all


def table_of(title: str, seeds: str, columns: Sequence[ClaimColumn], lines: Sequence[ClaimLine], parts: Parts) -> Table:
    """The lines as a table; columns about parts that were not measured, as in a quick run, are left out."""
    measured = [column for column in columns if all(setting in parts for setting in column.settings)]
    claims = tuple(_claim(line, measured, parts) for line in lines)
    return Table(title, seeds, tuple(column.title for column in measured), claims)


def _claim(line: ClaimLine, columns: Sequence[ClaimColumn], parts: Parts) -> Claim:
    values = {column.title: _values(line, column, parts) for column in columns}
    cells = tuple(_cell(line, values[column.title]) for column in columns)
    judged = {
        column.title: _verdict(line, values[column.title])
        for column in columns
        if values[column.title] and not column.cause
    }
    verdict = verdicts.against(judged)
    causes = _causes(line, columns, values, judged) if verdict.is_below else ()
    return Claim(line.claim, line.paper, cells, "", verdict, causes)


def _values(line: ClaimLine, column: ClaimColumn, parts: Parts) -> list[SeedSpread]:
    """A number for every setting; none if the claim is not about this column."""
    if line.columns and column.title not in line.columns:
        return []
    fairness = "ftf" in line.metric or line.metric.startswith("share")
    if column.ftf and not fairness:
        return []
    rows = [parts[setting][column.of] for setting in column.settings[: line.settings]]
    metric = f"{line.metric}{column.ftf}"
    return [row["times_better"][column.ours][metric] if line.shown == TIMES else row[metric] for row in rows]


def _cell(line: ClaimLine, values: Sequence[SeedSpread]) -> str:
    if not values:
        return "-"
    if line.shown == PERCENT:
        return " / ".join(percent(one, 0, signed=False) for one in values)
    return " / ".join(number(one, 2, "x") for one in values)


def _verdict(line: ClaimLine, values: Sequence[SeedSpread]) -> Verdict:
    wanted = _wanted(line, values)
    if line.judged == UP_TO:
        return verdicts.up_to(values, wanted[0])
    if line.judged == ALIKE:
        return verdicts.alike(values, wanted[0], NEAR * wanted[0])
    return verdicts.gain(values, wanted, 0.5 if line.judged == ABOVE_HALF else 1.0)


def _wanted(line: ClaimLine, values: Sequence[SeedSpread]) -> list[float]:
    each = line.wanted if isinstance(line.wanted, tuple) else (line.wanted,) * len(values)
    return list(each[: len(values)])


def _causes(
    line: ClaimLine,
    columns: Sequence[ClaimColumn],
    values: Mapping[str, Sequence[SeedSpread]],
    judged: Mapping[str, Verdict],
) -> tuple[TestedCause, ...]:
    """The causes that account for most of the difference, each in the column where switching it off changes most."""
    tested = [
        TestedCause(column.cause, column.title, _closes(line, values[column.instead_of], values[column.title]))
        for column in columns
        if column.cause and values[column.title] and values[column.instead_of] and judged[column.instead_of].is_below
    ]
    best: dict[str, TestedCause] = {}
    for one in sorted(tested, key=lambda cause: -cause.closes):
        best.setdefault(one.text, one)
    return tuple(best.values())[:SHOWN_CAUSES]


def _closes(line: ClaimLine, ours: Sequence[SeedSpread], without: Sequence[SeedSpread]) -> float:
    """The part of the difference from the paper that is gone without the cause: that of the setting where it is least."""
    if line.judged == UP_TO:
        best, best_without = (max(one.high for one in spreads) for spreads in (ours, without))
        return _part(best, best_without, _wanted(line, ours)[0])
    triples = zip(ours, without, _wanted(line, ours), strict=False)  # a cause may be switched off in one setting only
    return min(
        (
            _part(one.mean, other.mean, wanted)
            for one, other, wanted in triples
            if line.judged == ALIKE or one.mean < wanted
        ),
        default=0.0,
    )


def _part(value: float, without: float, paper: float) -> float:
    return (without - value) / (paper - value) if paper != value else 0.0
