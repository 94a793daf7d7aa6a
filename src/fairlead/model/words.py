"""Words in messages: suggestions for mistyped words, and counts with their nouns."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.model.errors import InputError

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


def counted(count: int, noun: str) -> str:
    """The count with its noun: `1 job`, `2 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
