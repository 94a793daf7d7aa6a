"""A study's measurements next to its paper's claims: the data behind terminal tables, JSON and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any

from fairlead.studies.papers.spread import SeedSpread
from fairlead.studies.papers.verdicts import Verdict, VerdictWord

COLUMNS = 120  # of a line of the page, except in tables


@dataclass(frozen=True)
class Claim:
    """One row: the claim, the paper's number, ours in every column of the table, and why they differ."""

    claim: str
    paper: str  # empty if the paper states no number
    ours: tuple[str, ...]
    why: str = ""  # empty if they agree or there is nothing to compare
    verdict: Verdict | None = None  # None if the paper states no number

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": "" if self.verdict is None else str(self.verdict)}


@dataclass(frozen=True)
class Table:
    title: str
    seeds: str
    columns: tuple[str, ...]  # of `ours`
    claims: tuple[Claim, ...]

    def __post_init__(self) -> None:
        assert all(len(claim.ours) == len(self.columns) for claim in self.claims), self.title

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
            if claim.why:
                claims_of.setdefault(claim.why, []).append(claim.claim)
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
    def verdict(self) -> str:
        """The number of claims for each verdict, and the names of missed claims; empty if nothing was judged."""
        judged = [
            (claim, claim.verdict) for table in self.tables for claim in table.claims if claim.verdict is not None
        ]
        if not judged:
            return ""
        counted = Counter(verdict.word for _, verdict in judged)
        missed = [_missed(claim, verdict) for claim, verdict in judged if verdict.word is VerdictWord.MISSED]
        counts = "; ".join(f"{word} {count}" for word, count in counted.most_common())
        return f"**{len(judged)} claims:** {counts}." + (f" Missed: {'; '.join(missed)}." if missed else "")


PREFACE = """\
# The papers' numbers, reproduced

Written by `{command}`. Each table states its command and its seeds; numbers are means over seeds, with the smallest and the
largest in brackets.

Each row with a number in its paper is judged by one rule. *Reached*: on average over seeds, ours is at least the paper's in
every column; *more*: in every column the gain is larger by a quarter; *in part*: reached in some columns; *less*: a gain,
but below the paper's; *missed*: no gain on average in some column, or a limit that is exceeded; *not on every seed*: at
least one seed has no gain. "Up to" is compared with the best seed. A limit *holds*; a number that describes a baseline is
*alike* or *differs*; a number for a theorem is *measured*. Sentences below a table appear only if its numbers call for them,
and take their numbers from the table."""
QUICK_REMARKS = "These remarks are about the full run (`fairlead reproduce {name}`); their numbers are not from the quick run above."


def page(studies: Sequence[Study], command: str) -> str:
    """The page in Markdown: every study with its tables, the reasons for differences, and its remarks."""
    return "\n\n".join([_filled(PREFACE.format(command=command)), *(section(study) for study in studies)]) + "\n"


def section(study: Study) -> str:
    """The section of the page about one paper."""
    blocks = [f"## {study.paper}", study.world, study.reading, study.verdict, study.made]
    for table in study.tables:
        blocks += [f"### {table.title}", f"`{study.command}`, {table.seeds}.", _markdown(table)]
        whys = [f"- *{'; '.join(claims)}:* {why}" for why, claims in table.sentences.items()]
        blocks += ["Where ours differs, and why:", "\n".join(whys)] if whys else []
    if study.findings:
        blocks += ["### What this run shows", *study.findings]
    if study.remarks:
        blocks += ["### Remarks", QUICK_REMARKS.format(name=study.name) if study.quick else "", *study.remarks]
    if study.limits:
        blocks += ["### What is missing, and why", *study.limits]
    return _filled("\n\n".join(block for block in blocks if block))


def _filled(text: str) -> str:
    """Markdown with its paragraphs and list items filled to `COLUMNS`; headings and tables stay as they are."""
    return "\n\n".join(_filled_block(block) for block in text.split("\n\n"))


def _filled_block(block: str) -> str:
    if block.startswith(("#", "|")):
        return block
    items = block.split("\n") if block.startswith("- ") else [block]
    indent = "  " if block.startswith("- ") else ""
    return "\n".join(
        fill(item, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) for item in items
    )


def _missed(claim: Claim, verdict: Verdict) -> str:
    return f"{claim.claim} ({', '.join(verdict.broken)})" if verdict.broken else claim.claim


def _markdown(table: Table) -> str:
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


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
