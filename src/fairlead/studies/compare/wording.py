"""A comparison in words: the same on the terminal, on the page and in figures."""

from __future__ import annotations

from fairlead.model.units import format_duration, format_number
from fairlead.numerics.paired import fewest_pairs
from fairlead.studies.compare.answer import ComparisonAnswer, PolicyRow

NOT_RANKED = (
    "Means are of the jobs that finished. A policy that leaves jobs unfinished is never marked best, and a run of it "
    "that does is not ranked against the others."
)


def title_of(answer: ComparisonAnswer, load: float | None = None) -> str:
    """The title of a comparison: `week12: 1,200 jobs of 4 tenants on 8 a100, 16 v100, load 0.8`."""
    work = answer.workload
    at = "" if load is None else f", load {load:g}"
    tenants = f"{work.tenants:,} tenant{'s' if work.tenants != 1 else ''}"
    return f"{work.name}: {work.jobs:,} jobs of {tenants} on {gpus_of(answer)}{at}"


def gpus_of(answer: ComparisonAnswer) -> str:
    return ", ".join(f"{count} {label}" for label, count in answer.cluster.gpus.items())


def mark_of(answer: ComparisonAnswer, row: PolicyRow) -> str:
    """`[1]` at a policy that ran under rules that other policies did not have; empty if all rules were the same."""
    marked = [rules for rules in answer.rule_sets if rules]
    if len(answer.rule_sets) < 2 or row.assumed not in marked:
        return ""
    return f"[{marked.index(row.assumed) + 1}]"


def rules_of(answer: ComparisonAnswer) -> list[str]:
    """A line for each set of rules that not all policies had, or for the one that all had."""
    sets = [rules for rules in answer.rule_sets if rules]
    lines = ["; ".join(f"{rule.name} ({rule.sentence})" for rule in rules) for rules in sets]
    if len(answer.rule_sets) < 2:
        return lines
    return [f"[{number}] {line}" for number, line in enumerate(lines, start=1)]


def run_notes(answer: ComparisonAnswer) -> list[str]:
    """What the runs of the first seed noted, with their policies; the JSON has the notes of every run."""
    first: dict[tuple[str, float | None], tuple[str, ...]] = {}
    for run in answer.runs:
        first.setdefault((run.policy, run.load), run.notes)
    at = {load: "" if load is None else f", load {load:g}" for load in answer.loads}
    return [f"{policy}{at[load]}: {note}" for (policy, load), notes in first.items() for note in notes]


def best_note(answer: ComparisonAnswer) -> str:
    """`every other policy`, or which others, if not all had the same rules."""
    alike = len(answer.rule_sets) < 2
    return "every other policy" if alike else "every other policy under the same rules, which are marked [1] and so on"


def why_no_best(answer: ComparisonAnswer) -> str:
    """Why no best policy can be marked in any column; empty if it can."""
    fewest, asked = fewest_pairs(), len(answer.seeds)
    finished = max(row.runs for row in answer.rows)
    drawn = max(row.runs + len(row.failed) for row in answer.rows)
    if finished >= fewest:
        return ""
    if not finished:
        return "no best is marked: every run failed"
    if drawn < asked:
        one = f"the seed changes nothing in this workload, so {asked} seeds are one run"
        some = f"some seeds change nothing in this workload, so {asked} seeds are {drawn} runs"
        return f"no best is marked: {one if drawn == 1 else some}; {fewest} that differ can show a difference"
    return f"no best is marked: {finished} seed{'s' if finished > 1 else ''} cannot show a difference, {fewest} can"


def unfinished_of(row: PolicyRow) -> str:
    """`3 of 60 jobs never finished`, over all runs of a row; empty if all did."""
    left = row.jobs_total - row.jobs_finished
    return f"{left:,} of {row.jobs_total:,} jobs never finished" if left else ""


def value_text(value: float, unit: str, digits: int = 3) -> str:
    """A value of the table with its unit."""
    if unit == "s":
        return format_duration(value)
    if unit == "part":
        return f"{value:.1%}"
    return f"{format_number(value, digits)} ms" if unit == "ms" else format_number(value, digits)
