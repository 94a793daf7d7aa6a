"""The documentation is plain English, fits its columns, and names files that exist. `prose` has the checks."""

from __future__ import annotations

from pathlib import Path

import pytest

import prose

DOCUMENTS = sorted(
    [*prose.ROOT.glob("*.md"), *(prose.ROOT / "docs").glob("*.md"), *(prose.ROOT / "docs" / "decisions").glob("*.md")]
)
# Directories of Python files that follow the word list; add one when it does.
FINISHED = (
    "src/fairlead/cli",
    "src/fairlead/engines",
    "src/fairlead/lease",
    "src/fairlead/library",
    "src/fairlead/model",
    "src/fairlead/numerics",
    "src/fairlead/placement",
    "src/fairlead/policies",
    "src/fairlead/rates",
    "src/fairlead/rounds",
    "src/fairlead/service",
    "src/fairlead/sim",
    "src/fairlead/studies",
    "src/fairlead/traces",
    "tests/cli",
    "tests/engines",
    "tests/lease",
    "tests/library",
    "tests/model",
    "tests/numerics",
    "tests/placement",
    "tests/policies",
    "tests/rates",
    "tests/rounds",
    "tests/service",
    "tests/sim",
    "tests/studies",
    "tests/tasks",
    "tests/traces",
)
PHRASES = prose.word_list(prose.WORD_LIST.read_text(encoding="utf-8"))


def name(path: Path) -> str:
    return str(path.relative_to(prose.ROOT))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_a_document_uses_no_phrase_of_the_word_list(path: Path) -> None:
    findings = list(prose.dialect(prose.markdown(path), PHRASES))
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize("directory", FINISHED)
def test_python_files_use_no_phrase_of_the_word_list(directory: str) -> None:
    files = sorted((prose.ROOT / directory).rglob("*.py"))
    assert files, f"{directory} has no Python files; correct FINISHED"
    findings = [finding for path in files for finding in prose.dialect(prose.python(path), PHRASES)]
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_a_document_has_no_line_that_should_be_wrapped(path: Path) -> None:
    findings = list(prose.long_lines(prose.markdown(path)))
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_a_document_names_only_files_that_exist(path: Path) -> None:
    findings = list(prose.broken_paths(prose.markdown(path)))
    assert not findings, "\n".join(findings)


def test_the_index_of_decisions_has_a_line_for_every_page() -> None:
    folder = prose.ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    pages = sorted(page.name for page in folder.glob("[0-9]*.md"))
    missing = [page for page in pages if f"({page})" not in index]
    assert not missing, f"docs/decisions/README.md: add a line for {', '.join(missing)}"
    numbers = [page[:4] for page in pages]
    assert len(set(numbers)) == len(numbers), "two pages in docs/decisions have the same number"


# The checks themselves


def test_a_finding_names_the_line_the_phrase_and_what_to_write(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("A short line.\nFast GPUs are dear.\n", encoding="utf-8")
    assert list(prose.dialect(prose.markdown(page), PHRASES)) == [f'{page}:2: "dear": write expensive']


def test_a_phrase_is_found_across_a_line_break_and_only_as_whole_words(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The job that goes\non is endearing.\n", encoding="utf-8")
    assert [finding.split(": ")[1] for finding in prose.dialect(prose.markdown(page), PHRASES)] == ['"goes on"']


def test_code_and_the_word_list_itself_are_not_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```\ndear\n```\n`dear`\n\n    dear\n\n| instead of | write |\n| --- | --- |\n| dear | expensive |\n",
        encoding="utf-8",
    )
    assert not list(prose.dialect(prose.markdown(page), PHRASES))


def test_a_row_of_a_table_may_be_long_and_other_lines_may_not(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"| {'word ' * 40}|\n{'word ' * 40}\n{'x' * 200}\n", encoding="utf-8")
    assert [finding.split(":")[-2] for finding in prose.long_lines(prose.markdown(page))] == ["2"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_wrapping_changes_no_word_and_no_line_twice(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    once = prose.wrapped(text)
    assert once.split() == text.split()
    assert prose.wrapped(once) == once


def test_wrapping_fills_paragraphs_and_items_and_leaves_code_and_tables_alone() -> None:
    words = "word " * 30
    kept = f"# Head {words}\n\n| {words}|\n\n```\n{words}\n\n- x\n```\n\n    {words}\n"
    assert prose.wrapped(kept) == kept
    assert prose.wrapped(f"a\nb {words}\n").splitlines() == [f"a b {'word ' * 23}".strip(), ("word " * 7).strip()]
    assert prose.wrapped("1. a\n   b\n2. c\n") == "1. a b\n2. c\n"
    assert prose.wrapped(f"- {words}\n").splitlines()[1].startswith("  word")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a page](nowhere.md)", "nowhere.md"),
        ("see `policies/nothing.py`", "policies/nothing.py"),
        ("see docs/decisions/9999", "docs/decisions/9999"),
        (
            "see docs/decisions/0003 and `policies/gavel.py` and tests/policies/, kept in `~/.cache/fairlead/compare`",
            "",
        ),
        ("shares and/or grants, Pollux/Sia, https://example.org/docs/none.md", ""),
    ],
)
def test_a_path_that_leads_nowhere_is_found(tmp_path: Path, text: str, wrong: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{text}\n", encoding="utf-8")
    findings = list(prose.broken_paths(prose.markdown(page)))
    assert len(findings) == bool(wrong)
    assert not wrong or wrong in findings[0]


def test_a_file_without_prose_has_no_findings(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.touch()
    assert not list(prose.dialect(prose.python(empty), PHRASES))


def test_python_is_read_by_its_docstrings_comments_and_literals(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""First.\n\nSecond: dear.\n"""\n\ndear = "also dear"  # and dear\n', encoding="utf-8")
    lines = {finding.split(":")[-3] for finding in prose.dialect(prose.python(module), PHRASES)}
    assert lines == {"3", "6"}
