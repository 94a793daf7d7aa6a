"""Words in messages: the nearest known one to one that was mistyped, and numbers of things."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.model.errors import InputError

FEW, MANY = 6, 40  # words beside the nearest one, and words alone, that a message has room for


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a complaint about an unknown word: the nearest that is known; if none is near, or they are few, those known."""
    import difflib  # only once something went wrong

    words = sorted(known)
    by_small = {name.lower(): name for name in reversed(words)}
    near = difflib.get_close_matches(word.lower(), by_small, n=1)
    more = f" and {len(words) - MANY:,} more" if len(words) > MANY else ""
    there_are = f"known: {', '.join(words[:MANY]) or 'none'}{more}"
    if not near:
        return there_are
    return f'did you mean "{by_small[near[0]]}"?' + (f" ({there_are})" if len(words) <= FEW else "")


def choose(what: str, word: str, known: Iterable[str]) -> str:
    """The word, if it is one of those that are known."""
    words = list(known)
    if word not in words:
        raise InputError(f'{what} "{word}" is not known; {did_you_mean(word, words)}')
    return word


def counted(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
