"""The overview, `-h` and `--version`, completion in shells and the manual page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from in_process import Fairlead

from fairlead.cli.command_tree import CommandNode, command_tree
from fairlead.cli.commands import COLUMNS, COMMANDS, overview
from fairlead.cli.completion import Shell, script_for
from fairlead.cli.manual import manual_page


@cache
def tree() -> CommandNode:
    return command_tree()


@pytest.fixture
def fairlead(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fairlead:
    return Fairlead(monkeypatch, capsys)


def test_the_overview_has_the_summary_of_every_command() -> None:
    assert {child.path[0]: child.summary for child in tree().children} == {
        entry.name: entry.summary for entry in COMMANDS.values()
    }
    assert max(map(len, overview().splitlines())) <= COLUMNS


def test_the_overview_and_the_version_import_only_the_standard_library() -> None:
    for option, first in (("--help", "Usage: fairlead COMMAND"), ("-h", "Usage:"), ("--version", "fairlead 0.")):
        code = (
            f"import sys; sys.argv = ['fairlead', '{option}']; from fairlead.cli.entry import main; main()\n"
            "print(sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
        )
        done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.startswith(first)
        imported = set(done.stdout.splitlines()[-1].strip("[]").replace("'", "").split(", "))
        assert not imported & {"typer", "click", "rich", "numpy", "pydantic"}, imported


def test_a_simulation_starts_without_the_library_that_converts_options(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,model,arrival_s,gpus,steps\na,resnet50,0,1,100\n")
    words = ["fairlead", "simulate", "--cluster", "v100:1", "--trace", str(trace), "--policy", "fifo", "-o", "json"]
    code = (
        f"import sys; sys.argv = {words}; from fairlead.cli.entry import main\n"
        "try: main()\nexcept SystemExit as end: print('pydantic' in sys.modules, end.code)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.startswith('{\n  "policy": "fifo"')
    assert done.stdout.splitlines()[-1] == "False 0"


@pytest.mark.parametrize(
    "words", ["--help", "--version", "policies", "policies -o json", "simulate --help", "trace", "no-such-command"]
)
def test_a_reader_that_has_gone_ends_a_command_without_a_word(words: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "fairlead", *words.split()]

    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)

    os.close(write)
    usage_error = words == "no-such-command"
    assert done.returncode == (2 if usage_error else 1)
    assert ("No such command" in done.stderr) if usage_error else not done.stderr


@pytest.mark.parametrize("words", [("simulate",), ("trace",), ("trace", "convert"), ("nodes", "drain"), ()])
def test_both_options_for_help_work_everywhere(fairlead: Fairlead, words: tuple[str, ...]) -> None:
    short, long = fairlead(*words, "-h"), fairlead(*words, "--help")

    assert short == long
    assert short[0] == 0
    assert " ".join(("Usage: fairlead", *words)) in short[1]


def test_without_a_command_the_overview_is_printed(fairlead: Fairlead) -> None:
    code, out, _ = fairlead()

    assert code == 2
    assert out.strip() == overview()


def complete(script: Path, line: str) -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _fairlead; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_commands_options_and_their_words(tmp_path: Path) -> None:
    script = tmp_path / "fairlead.bash"
    script.write_text(script_for(Shell.bash, tree()))

    assert complete(script, "fairlead sim") == ["simulate"]
    assert complete(script, "fairlead trace c") == ["convert"]
    assert complete(script, "fairlead simulate --restart") == ["--restart-cost"]
    assert complete(script, "fairlead queue -o ") == ["table", "json"]
    assert complete(script, "fairlead simulate --seed 1 --jour") == ["--journal"]
    assert complete(script, "fairlead completion z") == ["zsh"]
    assert complete(script, f"fairlead simulate --trace {tmp_path}/fair") == [str(script)]


@pytest.mark.parametrize("shell", [Shell.zsh, Shell.fish])
def test_a_shell_can_read_its_script(tmp_path: Path, shell: Shell) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(script_for(shell, tree()))

    subprocess.run([shell, "--no-execute", str(script)], check=True)


@pytest.mark.parametrize("shell", list(Shell))
def test_a_script_names_every_command_and_option(shell: Shell) -> None:
    words = set(script_for(shell, tree()).replace('"', " ").replace(")", " ").split())

    for node in tree().walk():
        assert set(node.path) <= words
        long = {name for one in node.parameters if one.is_option for name in one.names if name.startswith("--")}
        assert {name.removeprefix("--") if shell is Shell.fish else name for name in long} <= words


def test_the_manual_page_describes_every_option_and_is_valid(tmp_path: Path) -> None:
    page = manual_page(tree())

    for node in tree().walk():
        for one in node.parameters:
            assert one.names[0].replace("-", "\\-") in page
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-z"], input=page, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
