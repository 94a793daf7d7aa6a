"""Abbreviations and words of pages that need an explanation, which is shown on hover and in a list."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

TERMS = {
    "JCT": "job completion time: from the arrival of a job to its end",
    "FTF": "finish-time fairness: the time of a job in the shared cluster over its time alone on an equal share; "
    "above 1 it would have been better off alone",
    "p50": "median: half of the values are at most this",
    "p90": "nine tenths of the values are at most this",
    "p99": "99 of 100 values are at most this",
    "GPU-h": "GPU-hours: one GPU for an hour",
    "GPU-hours": "one GPU for an hour is one GPU-hour",
    "CPU": "processor time of the scheduler, not the time that passed",
    "makespan": "from the first arrival to the end of the last job",
    "latency ratio": "the time that a job waited over its expected run time",
    "sharing incentive": "the speed of a tenant relative to a private slice of the cluster, while it wanted more; "
    "1 or more is no worse than alone",
    "envy": "how much faster a tenant would have been with the GPUs of another one; 0 is none",
    "fragmented": "free GPUs on nodes with too few of them for a job",
    "entitled": "the part of the GPUs to which its weight entitles a tenant, among tenants with jobs",
    "frontier": "the policies that no other policy beats in both respects",
    "seed": "the number from which everything random in a run is drawn",
}
_WORD = re.compile(rf"(?<![\w-])({'|'.join(sorted(map(re.escape, TERMS), key=len, reverse=True))})(?![\w-])", re.I)
_BY_SMALL = {term.lower(): term for term in TERMS}


def explained(text: str) -> Markup:
    """The text with an explanation on each term, which browsers show on hover."""
    parts, end = [], 0
    for match in _WORD.finditer(text):
        meaning = TERMS[_BY_SMALL[match[0].lower()]]
        parts += [escape(text[end : match.start()]), Markup('<abbr title="{}">{}</abbr>').format(meaning, match[0])]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])
