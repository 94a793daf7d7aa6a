"""The page of all papers in Markdown: the counts at its top, then a section for each study."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from fairlead.studies.papers.claim_tables import Study
from fairlead.studies.papers.tally import HEAD, summary, tally_row

COLUMNS = 120  # of a line of the page, except in tables
PREFACE = """\
# The papers' numbers, reproduced

Written by `{command}`. Each table states its command and its seeds; numbers are means over seeds, with the smallest and the
largest in brackets.

Each row with a number in its paper is judged by one rule. *Reached*: on average over seeds, ours is at least the paper's in
every setting; *more*: the gain is larger by a quarter in every setting; *alike*: the gain is at least four fifths of the
paper's; *in part*: reached or alike in some settings; *less*: a smaller gain; *missed*: no gain on average in some setting, or
a limit that is exceeded; *not on every seed*: at least one seed has no gain. "Up to" is compared with the best seed, and
"never", "always" and "every" with the worst one. A limit *holds*; a number that describes a baseline is *alike* or *differs*;
a number for a theorem is *measured*. Where a paper does not state its baseline well enough, each candidate has a column of its
own and is judged alone; the verdict names the candidates, and the one that is closest to the paper counts. Sentences below a
table appear only if its numbers call for them, and take their numbers from the table: an explanation names the column in which
its cause is switched off and the part of the difference that is gone there (docs/decisions/0147-verdicts-and-causes.md)."""
COUNTS = """\
Counts are of claims with a number: reached / alike / less / missed. *More* and *holds* count as reached, *in part* as less,
*differs* as missed. "Before" is this page before each claim was judged against the baselines that its paper may mean, by the
rules of that time and by today's rules. A claim is explained if a cause that was switched off in a column of its own accounts
for at least half of the difference."""
QUICK_REMARKS = "These remarks are about the full run (`fairlead reproduce {name}`); their numbers are not from the quick run above."


def page(studies: Sequence[Study], command: str) -> str:
    """The page in Markdown: every study with its tables, the reasons for differences, and its remarks."""
    blocks = [_filled(PREFACE.format(command=command)), _counts(studies), *(section(study) for study in studies)]
    return "\n\n".join(blocks) + "\n"


def section(study: Study) -> str:
    """The section of the page about one paper."""
    blocks = [f"## {study.paper}", study.world, study.reading, study.verdict, study.made]
    for table in study.tables:
        blocks += [f"### {table.title}", f"`{study.command}`, {table.seeds}.", _markdown([table.head, *table.rows])]
        whys = [f"- *{'; '.join(claims)}:* {' '.join(why.split())}" for why, claims in table.sentences.items()]
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


def _counts(studies: Sequence[Study]) -> str:
    rows = [list(HEAD), *(tally_row(study) for study in studies)]
    return "\n\n".join(
        ["## How many claims are reproduced", _filled(COUNTS), _markdown(rows), _filled(summary(studies))]
    )


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row is its head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
