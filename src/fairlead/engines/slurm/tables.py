"""Tables that Slurm's commands print with `-O 'Field:SEPARATOR,...'`, the form that is the same in all versions.

JSON differs from version to version (states are strings or lists, numbers plain or objects), so it is not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

SEPARATOR = "\x1f"  # of fields, after each one; no sensible name or comment contains it
_ABSENT = frozenset({"", "(null)", "N/A", "NONE", "None", "none", "Unknown"})


def format_of(columns: Sequence[str], separator: str = SEPARATOR) -> str:
    """The argument of `-O` for these columns, none of which is cut off."""
    return ",".join(f"{column}:{separator}" for column in columns)


def read_table(text: str, columns: Sequence[str], separator: str = SEPARATOR) -> Iterator[Mapping[str, str]]:
    """The rows by column. Free text is in the last column, so that a separator in it shifts nothing.

    Rows with too few fields are left out: a line break in free text must not make a row of its own.
    """
    for line in text.split("\n"):
        fields = line.split(separator, len(columns) - 1)
        if len(fields) == len(columns):
            yield dict(zip(columns, (*fields[:-1], fields[-1].removesuffix(separator)), strict=True))


def value(text: str) -> str:
    """The field without blanks; empty if Slurm printed one of its words for nothing."""
    stripped = text.strip()
    return "" if stripped in _ABSENT else stripped


def number(text: str) -> int | None:
    """The leading whole number of a field, such as `2` or `2-4`; None if there is none."""
    digits = text.strip().partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None
