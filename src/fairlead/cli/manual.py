"""The manual page fairlead(1): `python -m fairlead.cli.manual > fairlead.1`, or `make man`."""

from __future__ import annotations

from fairlead import __version__
from fairlead.cli.command_tree import CommandNode, ParameterNode, command_tree
from fairlead.cli.commands import INTRODUCTION, PANELS


def manual_page(tree: CommandNode) -> str:
    """The page in the macros of man(7): every command with its options, in the order of the overview."""
    by_name = {child.path[0]: child for child in tree.children}
    lines = [
        f'.TH FAIRLEAD 1 "" "Fairlead {__version__}" "User Commands"',
        ".SH NAME",
        "fairlead \\- schedule deep-learning training on mixed GPU clusters",
        ".SH SYNOPSIS",
        ".B fairlead\n.I COMMAND\n[OPTIONS]",
        ".SH DESCRIPTION",
        _text(INTRODUCTION),
        _text("Durations are seconds or parts such as 30s, 5m, 1h30m or 2d. The option -h describes a command, and"),
        _text("--version prints the version of the program."),
    ]
    for panel, entries in PANELS.items():
        lines.append(f".SH {_text(panel.upper())}")
        for entry in entries:
            for node in by_name[entry.name].walk():
                lines += _command(node)
    lines += [".SH ENVIRONMENT", ".TP\nFAIRLEAD_URL, FAIRLEAD_TOKEN\nAddress of the service and a token for it."]
    return "\n".join(lines) + "\n"


def _command(node: CommandNode) -> list[str]:
    words = [one.names[0] for one in node.parameters if not one.is_option]
    title = " ".join(("fairlead", *node.path, *words))
    lines = [f'.SS "{_text(title)}"']
    for i, paragraph in enumerate(node.help.split("\n\n")):
        lines += [".PP"] * (i > 0) + [_text(" ".join(paragraph.split()))]
    for one in node.parameters:
        lines += [".TP", f"\\fB{_text(_usage(one))}\\fR", _text(_described(one))]
    return lines


def _usage(one: ParameterNode) -> str:
    return ", ".join(one.names) + (f" {one.value}" if one.value else "")


def _described(one: ParameterNode) -> str:
    default = f" Default: {one.default}." if one.default else ""
    return " ".join(one.help.split()) + default + (" May be repeated." if one.repeatable else "")


def _text(text: str) -> str:
    """Text in which nothing is a request or an escape of roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return "\\&" + escaped if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    print(manual_page(command_tree()), end="")
