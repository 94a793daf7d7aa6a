"""A job's command that is one plain Python command, so that a process whose interpreter runs already can execute it.

    python [options] script.py [arguments]        python [options] -m module [arguments]

Words may be quoted. Anything for which a shell is needed (variables, pipes, several commands) is refused by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fairlead.model.errors import InputError

_WORD = re.compile(r"""(?:[A-Za-z0-9_@%+=:,./^-]|'[^']*'|"[^"$`\\!]*")+""")
_PIECE = re.compile(r"""'([^']*)'|"([^"]*)"|([^'"]+)""")
_PYTHON = re.compile(r"(?:.*/)?python\d*(?:\.\d+)?\Z")
_FLAGS = re.compile(r"-[bBdEIOPqsSuv]+\Z")
_WITH_VALUE = ("-W", "-X")


@dataclass(frozen=True, slots=True)
class PythonCommand:
    """`words` starts the interpreter with its options; `target` is a script, or a module if `is_module`."""

    words: tuple[str, ...]
    target: str
    is_module: bool
    arguments: tuple[str, ...]


def python_command(run: str) -> PythonCommand:
    """The parts of a plain Python command. InputError if it is not one."""
    words = _split(run)
    if words[:1] == ["exec"]:
        words.pop(0)
    if not words or not _PYTHON.match(words[0]):
        first = f'"{words[0]}"' if words else "nothing"
        raise InputError(f"its first word is {first}; wanted python, or the path of a Python interpreter")
    options = [words.pop(0)]
    while words and words[0].startswith("-") and words[0] != "-m":
        options += _option(words)
    is_module = words[:1] == ["-m"]
    if is_module:
        words.pop(0)
    if not words:
        raise InputError("it names no script and no module")
    return PythonCommand(tuple(options), words[0], is_module, tuple(words[1:]))


def _split(run: str) -> list[str]:
    words, at = [], 0
    run = run.strip()
    while at < len(run):
        if run[at] in " \t":
            at += 1
            continue
        match = _WORD.match(run, at)
        if match is None or (match.end() < len(run) and run[match.end()] not in " \t"):
            odd = run[at if match is None else match.end()]
            raise InputError(f"it needs a shell because of {odd!r}; put what needs a shell into `setup` or the script")
        words.append("".join(a or b or c for a, b, c in _PIECE.findall(match[0])))
        at = match.end()
    return words


def _option(words: list[str]) -> list[str]:
    option = words.pop(0)
    if _FLAGS.match(option):
        return [option]
    if option.startswith(_WITH_VALUE):
        return [option] if len(option) > 2 or not words else [option, words.pop(0)]
    raise InputError(f"a process that runs already cannot take the interpreter's option {option}")
