"""What a study found, beside what its paper says: the one shape that terminal tables, JSON and the page are drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Spread = Mapping[str, float]  # mean, low, high over seeds


@dataclass(frozen=True)
class Claim:
    """One line: what is claimed, the paper's number, ours in every column of the table, and why they differ."""

    claim: str
    paper: str  # empty where the paper is silent
    ours: tuple[str, ...]
    why: str = ""  # empty where they agree or there is nothing to compare


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
        return ["claim", "paper", *self.columns] if self.has_paper else ["", *self.columns]

    @property
    def rows(self) -> list[list[str]]:
        """Under `head`; a paper that says nothing about the whole table gets no column."""
        return [[c.claim, *([c.paper or "-"] if self.has_paper else []), *c.ours] for c in self.claims]

    @property
    def sentences(self) -> dict[str, list[str]]:
        """Why ours differs, and the claims that it is said of."""
        said: dict[str, list[str]] = {}
        for claim in self.claims:
            if claim.why:
                said.setdefault(claim.why, []).append(claim.claim)
        return said

    @property
    def has_paper(self) -> bool:
        return any(claim.paper for claim in self.claims)


@dataclass(frozen=True)
class Study:
    name: str  # as in `fairlead reproduce NAME`
    paper: str
    quick: bool
    world: str  # what was run, and what of it is ours because the paper is silent
    reading: str  # how to read the numbers, in short
    tables: tuple[Table, ...]
    remarks: tuple[str, ...]  # paragraphs about the full run

    @property
    def command(self) -> str:
        return f"fairlead reproduce {self.name}{' --quick' if self.quick else ''}"


PREFACE = """\
# The papers' numbers again

Written by `{command}`. The command and the seeds stand at each table; numbers are means over seeds, with the least and the
most in brackets."""
QUICK_REMARKS = "These remarks are about the full run (`fairlead reproduce {name}`); their numbers are not from the quick one above."


def page(studies: Sequence[Study], command: str) -> str:
    """Markdown: every study with its tables, the sentences of the claims that differ, and its remarks."""
    return "\n\n".join([PREFACE.format(command=command), *(_section(study) for study in studies)]) + "\n"


def _section(study: Study) -> str:
    blocks = [f"## {study.paper}", study.world, study.reading]
    for table in study.tables:
        blocks += [f"### {table.title}", f"`{study.command}`, {table.seeds}.", _markdown(table)]
        whys = [f"- *{'; '.join(claims)}:* {why}" for why, claims in table.sentences.items()]
        blocks += ["Where ours differs, and why:", "\n".join(whys)] if whys else []
    if study.remarks:
        blocks.append("### Remarks")
        blocks += [QUICK_REMARKS.format(name=study.name)] if study.quick else []
        blocks += study.remarks
    return "\n\n".join(blocks)


def _markdown(table: Table) -> str:
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def number(values: Spread, digits: int = 2, unit: str = "") -> str:
    """The mean with its unit, then the least and the most."""
    mean, low, high = (f"{values[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean}{unit} ({low}..{high})"


def percent(values: Spread, digits: int = 1, *, signed: bool = True) -> str:
    sign = "+" if signed else ""
    mean, low, high = (f"{100 * values[key]:{sign}.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} % ({low}..{high})"


def seeds_of(seeds: range) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}-{seeds[-1]}"
