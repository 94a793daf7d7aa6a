"""Words of jobs and of other users never control the terminal of the reader."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.model.words import printable
from serving import World, world

HOSTILE = "\x1b]0;owned\x07\x1b[2J[/bold]\u202e\x9b31m"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.fixture(scope="module")
def job(here: World) -> str:
    id_ = here.submit(model=HOSTILE)
    here.take()
    lease = here.service.directory.leases / id_ / "1"
    lease.mkdir(parents=True)
    (lease / "log").write_text(f"{HOSTILE}\r\n10 %\r20 %\n", newline="")
    return id_


def on_terminal(here: World, home: Path, *words: str) -> str:
    """What a command writes to a terminal, where a line feed arrives as carriage return and line feed."""
    main, terminal = os.openpty()
    environment = {
        **os.environ,
        "HOME": str(home),
        "TERM": "dumb",
        "FAIRLEAD_URL": str(here.client.base_url),
        "FAIRLEAD_TOKEN": here.admin["Authorization"].removeprefix("Bearer "),
    }
    command = [sys.executable, "-m", "fairlead.cli.main", *words]
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        parts = []
        try:
            while part := os.read(main, 65536):
                parts.append(part)
        except OSError:
            pass  # the end of a terminal whose other side is closed
    os.close(main)
    assert process.returncode == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("words", [["status", "{job}"], ["queue"], ["top", "--once"], ["journal"]])
def test_a_hostile_name_is_shown_and_not_obeyed(here: World, job: str, tmp_path: Path, words: list[str]) -> None:
    text = on_terminal(here, tmp_path, *(word.replace("{job}", job) for word in words))

    assert printable(text) == text
    if words[0] == "status":
        assert r"\x1b]0;owned\x07\x1b[2J[/bold]\u202e\x9b31m" in text.replace("\n", "")


def test_output_of_a_job_is_shown_and_not_obeyed(here: World, job: str, tmp_path: Path) -> None:
    text = on_terminal(here, tmp_path, "logs", job)

    assert text == "\\x1b]0;owned\\x07\\x1b[2J[/bold]\\u202e\\x9b31m\n10 %\n20 %\n"


def test_an_error_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairlead.cli.main", "submit", "-"]
    done = subprocess.run(
        command, input='name: a\nrun: x\n"\\e[31mred": 1\n', capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert r'unknown key "\x1b[31mred"' in done.stderr


def test_tabs_and_line_feeds_are_kept() -> None:
    assert printable("a\tb\nc \ud800 ü 😀") == "a\tb\nc \\ud800 ü 😀"
