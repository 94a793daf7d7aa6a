"""The elements of one long JSON array, one at a time, so that a log of gigabytes does not need gigabytes of memory."""

from __future__ import annotations

import json
import re
from typing import IO

from fairlead.model.errors import InputError
from fairlead.traces.importers.rows import Records

_CHUNK = 1 << 18
_BETWEEN = re.compile(r"[\s,]*")


def array_records(file: IO[str], opening: str) -> Records:
    """(line, element) of the array that begins where the regular expression `opening` first matches."""
    decode = json.JSONDecoder().raw_decode
    text, at, line, chars = file.read(_CHUNK), 0, 1, _CHUNK
    start = re.search(opening, text)
    if start is None:
        raise InputError("has no list of jobs near its beginning", path="", line=1)
    at, line = start.end(), 1 + text.count("\n", 0, start.end())
    while True:
        begin = _end_of_blank(text, at)
        line, at = line + text.count("\n", at, begin), begin
        if text.startswith("]", at):
            return
        try:
            element, end = decode(text, at)
        except RecursionError:
            raise InputError("is nested too deeply", path="", line=line) from None
        except ValueError as error:
            chunk = file.read(chars)
            if not chunk:
                raise InputError(f"is not JSON: {getattr(error, 'msg', error)}", path="", line=line) from None
            text, at = text[at:] + chunk, 0
            chars *= 2  # otherwise a large element would take quadratic time
            continue
        yield line, element
        line, at, chars = line + text.count("\n", at, end), end, _CHUNK


def _end_of_blank(text: str, at: int) -> int:
    blank = _BETWEEN.match(text, at)
    return blank.end() if blank else at
