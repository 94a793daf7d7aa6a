"""Words in messages: suggestions for mistyped words, pairs, counts with their nouns, and text that is safe to print."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fairlead.model.errors import InputError

# Characters that a terminal obeys instead of showing: control characters other than tab and line feed, those that change
# the direction of text, and halves of characters, which cannot be printed at all.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
FEW, MANY = 6, 40  # known words listed next to a suggestion, and without one


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the nearest known word, or all if none is near or few exist."""
    import difflib  # slow to import, and only needed for an error

    words = sorted(known)
    by_small = {name.lower(): name for name in reversed(words)}
    near = difflib.get_close_matches(word.lower(), by_small, n=1)
    more = f" and {len(words) - MANY:,} more" if len(words) > MANY else ""
    there_are = f"known: {', '.join(words[:MANY]) or 'none'}{more}"
    if not near:
        return there_are
    return f'did you mean "{by_small[near[0]]}"?' + (f" ({there_are})" if len(words) <= FEW else "")


def choose(what: str, word: str, known: Iterable[str]) -> str:
    """The word, if it is known; otherwise an error with suggestions."""
    words = list(known)
    if word not in words:
        raise InputError(f'{what} "{word}" is not known; {did_you_mean(word, words)}')
    return word


def parse_pairs(pairs: Iterable[str], option: str, example: str = "name=1") -> dict[str, str]:
    """Words such as `a=1` of an option as a mapping. A word that is none is answered with the example."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise InputError(f'{option} "{pair}" is not NAME=VALUE; write it as in {option} {example}')
        if name in values:
            raise InputError(f"{option} {name} appears twice")
        values[name] = value
    return values


def counted(count: int, noun: str) -> str:
    """The count with its noun: `1 job`, `2 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str) -> str:
    r"""The text for a terminal: characters that it would obey are shown as escapes such as \x1b."""
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
