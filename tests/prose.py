"""Checks English prose: phrases of the word list, line length, links and paths.

`python tests/prose.py PATH...` prints what it finds in Markdown and Python files and in folders of them, and
`python tests/prose.py --wrap FILE...` wraps the paragraphs of Markdown files. The word list is the table in
CONTRIBUTING.md; nothing else repeats it.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORD_LIST = ROOT / "CONTRIBUTING.md"
COLUMNS = 120
# Where a path that prose names may start; `policies/gavel.py` is short for `src/fairlead/policies/gavel.py`.
BASES = (ROOT, ROOT / "src" / "fairlead", ROOT / "docs", ROOT / "tests")

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(r"(?<![\w./~-])(?:[\w-]+/)+[\w.-]*\w/?")
_DECISION = re.compile(r"(?:docs/)?decisions/\d{4}")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) +")
_INLINE_CODE = re.compile(r"`[^`]*`")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of prose in a file, without its code."""

    path: Path
    number: int
    text: str

    def finding(self, problem: str) -> str:
        shown = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{shown}:{self.number}: {problem}"


@dataclass(frozen=True, slots=True)
class Phrase:
    pattern: re.Pattern[str]
    instead: str


def word_list(text: str) -> list[Phrase]:
    """The phrases of the table headed `instead of | write`, one for each alternative in its left column."""
    rows = re.findall(r"^\| instead of \| write \|\n\| --- \| --- \|\n((?:\|.*\n)+)", text, re.MULTILINE)
    if len(rows) != 1:
        raise ValueError(f"wanted one table headed `instead of | write`, found {len(rows)}")
    phrases = []
    for row in rows[0].splitlines():
        left, right = (cell.strip() for cell in row.strip("|").split("|"))
        phrases += [Phrase(_pattern(phrase.strip()), right) for phrase in left.split(" / ")]
    return phrases


def _pattern(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(phrase)}(?![\w-])", re.IGNORECASE)


def markdown(path: Path) -> Iterator[Line]:
    """The lines of a Markdown file outside code blocks and outside the word list itself."""
    fenced = listed = False
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if text.lstrip().startswith("```"):
            fenced = not fenced
        elif text == "| instead of | write |":
            listed = True
        listed = listed and text.startswith("|")
        if not fenced and not listed and not text.startswith("    "):
            yield Line(path, number, text)


def python(path: Path) -> Iterator[Line]:
    """The docstrings, comments and string literals of a Python file, line by line."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Line(path, token.start[0], token.string)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for offset, text in enumerate(node.value.splitlines()):
                yield Line(path, node.lineno + offset, text)


def dialect(lines: Iterable[Line], phrases: list[Phrase]) -> Iterator[str]:
    """Phrases of the word list, also those that a line break divides."""
    lines = list(lines)
    for line, after in zip_longest(lines, lines[1:]):
        text = _INLINE_CODE.sub("`", line.text)
        both = f"{text.rstrip()} {after.text.lstrip()}" if after and after.number == line.number + 1 else text
        for phrase in phrases:
            match = phrase.pattern.search(both)
            if match and match.start() < len(text):
                yield line.finding(f'"{match[0]}": write {phrase.instead}')


def long_lines(lines: Iterable[Line]) -> Iterator[str]:
    """Lines that could be wrapped; Markdown cannot wrap a row of a table or a single long word."""
    for line in lines:
        if len(line.text) > COLUMNS and not line.text.startswith("|") and " " in line.text.strip():
            yield line.finding(f"{len(line.text)} columns; `python tests/prose.py --wrap FILE` wraps it at {COLUMNS}")


def wrapped(text: str) -> str:
    """Markdown with its paragraphs and list items filled to the column limit; code, tables and headings stay as they are."""
    done: list[str] = []
    open_lines: list[str] = []  # of the paragraph or list item that is being read
    fenced = False

    def close() -> None:
        if open_lines:
            marker = _ITEM.match(open_lines[0])
            words = " ".join(line.strip() for line in open_lines)[len(marker[0].strip()) if marker else 0 :].split()
            first = marker[0] if marker else open_lines[0][: -len(open_lines[0].lstrip())]
            done.extend(_filled(words, first))
            open_lines.clear()

    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        verbatim = fenced or fence or not line.strip() or line.startswith(("|", "#", "<!--"))
        if verbatim or (line.startswith("    ") and not open_lines):
            close()
            done.append(line)
        else:
            if _ITEM.match(line):
                close()
            open_lines.append(line)
        fenced ^= fence
    close()
    return "\n".join(done) + "\n"


def _filled(words: list[str], first: str) -> list[str]:
    lines = [first + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= COLUMNS:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * len(first) + word)
    return lines


def broken_paths(lines: Iterable[Line]) -> Iterator[str]:
    """Relative links and paths of this repository that lead nowhere."""
    for line in lines:
        for target in _LINK.findall(line.text):
            file = target.split("#")[0]
            if file and "://" not in target and not (line.path.parent / file).exists():
                yield line.finding(f"the link to {target} leads nowhere; correct it or remove it")
        for name in _PATH.findall(_LINK.sub("]", line.text)):
            if _ours(name) and not _exists(name):
                yield line.finding(f"{name} does not exist; name the file where this is now")


def _ours(name: str) -> bool:
    """Whether a word with slashes names a file of this repository: its first folder is one of ours, and it looks like one."""
    first, _, rest = name.partition("/")
    looks = name.endswith("/") or "." in rest or bool(_DECISION.match(name))
    made = first == "build"  # by commands, if it is there at all
    return looks and not made and any((base / first).is_dir() for base in BASES)


def _exists(name: str) -> bool:
    number = _DECISION.fullmatch(name)
    return any(any(base.glob(f"{name}-*.md")) if number else (base / name).exists() for base in BASES)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(p for p in path.rglob("*") if p.suffix in (".md", ".py")) if path.is_dir() else [path]


def main(arguments: list[str]) -> int:
    """Print the findings in files and folders, or wrap files; exit code 1 if there are findings."""
    if arguments[:1] == ["--wrap"]:
        for path in map(Path, arguments[1:]):
            path.write_text(wrapped(path.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    phrases = word_list(WORD_LIST.read_text(encoding="utf-8"))
    findings: list[str] = []
    for path in _files(Path(argument).resolve() for argument in arguments):
        lines = list(python(path) if path.suffix == ".py" else markdown(path))
        findings += [*dialect(lines, phrases), *broken_paths(lines)]
        findings += long_lines(lines) if path.suffix == ".md" else ()
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
