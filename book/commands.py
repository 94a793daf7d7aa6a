"""The page of all commands and options, generated from the commands."""

from __future__ import annotations

from fairlead.cli.command_tree import CommandNode, ParameterNode, command_tree
from fairlead.cli.commands import PANELS


def command_reference() -> str:
    """Markdown with a section for each group of the overview and a table of options for each command."""
    by_name = {child.path[0]: child for child in command_tree().children}
    lines = [
        "# Commands",
        "",
        "This page is generated from the commands; `fairlead COMMAND -h` prints the same. Durations are seconds or text",
        "such as `30s`, `5m`, `1h30m` or `2d`. `fairlead completion bash` (or zsh, fish) completes them in a shell, and",
        "`make man` writes them as a manual page.",
    ]
    for panel, entries in PANELS.items():
        lines += ["", f"## {panel}"]
        for entry in entries:
            for node in by_name[entry.name].walk():
                lines += _section(node)
    return "\n".join(lines) + "\n"


def _section(node: CommandNode) -> list[str]:
    lines = ["", f"### fairlead {' '.join(node.path)}", ""]
    lines += [_plain(" ".join(paragraph.split())) + "\n" for paragraph in node.help.split("\n\n")]
    if node.parameters:
        lines += ["| option | meaning |", "| --- | --- |", *(_row(one) for one in node.parameters)]
    return lines


def _row(one: ParameterNode) -> str:
    usage = ", ".join(f"`{name}`" for name in one.names) + (f" `{one.value}`" if one.value else "")
    notes = [_plain(" ".join(one.help.split()))]
    notes += [f"Default: `{one.default}`."] if one.default else []
    notes += ["Required."] if one.required and one.is_option else []
    notes += ["May be repeated."] if one.repeatable else []
    return " | ".join(("", usage.replace("|", "\\|"), " ".join(notes).replace("|", "\\|"), "")).strip()


def _plain(text: str) -> str:
    """Help text in which only backquotes are marks of Markdown."""
    return text.replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")
