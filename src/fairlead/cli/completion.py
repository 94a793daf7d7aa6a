"""`fairlead completion`: scripts for shells, which hold all commands and options and start no Python while one types."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fairlead.cli.command_tree import CommandNode, ParameterNode, command_tree


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that will read the script.", show_default=False)],
) -> None:
    """Print a script that completes commands and options in a shell.

    Bash: `eval "$(fairlead completion bash)"` in ~/.bashrc. Zsh: the same with zsh in ~/.zshrc, after compinit. Fish:
    `fairlead completion fish > ~/.config/fish/completions/fairlead.fish`.
    """
    print(script_for(shell, command_tree()))


def script_for(shell: Shell, tree: CommandNode) -> str:
    return {Shell.bash: _bash, Shell.zsh: _zsh, Shell.fish: _fish}[shell](tree)


def _bash(tree: CommandNode) -> str:
    """Follow the words to the command that they name, then offer what it takes; files where it takes something else."""
    return f"""# Completion of fairlead for bash, made by `fairlead completion bash`.
_fairlead() {{
    local at=fairlead i word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    for (( i = 1; i < COMP_CWORD; i++ )); do
        case "$at ${{COMP_WORDS[i]}}" in
            {_paths(tree)}) at="$at ${{COMP_WORDS[i]}}" ;;
        esac
    done
    COMPREPLY=()
    case "$at $previous" in
{_choices(tree, 'COMPREPLY=($(compgen -W "{words}" -- "$word")); return')}
    esac
    case "$at" in
{_offers(tree, 'COMPREPLY=($(compgen -W "{words}" -- "$word"))')}
    esac
    [[ ${{#COMPREPLY[@]}} -gt 0 || $word == -* ]] || mapfile -t COMPREPLY < <(compgen -f -- "$word")
}}
complete -o filenames -F _fairlead fairlead"""


def _zsh(tree: CommandNode) -> str:
    return f"""# Completion of fairlead for zsh, made by `fairlead completion zsh`.
_fairlead() {{
    local at=fairlead i
    for (( i = 2; i < CURRENT; i++ )); do
        case "$at ${{words[i]}}" in
            {_paths(tree)}) at="$at ${{words[i]}}" ;;
        esac
    done
    case "$at ${{words[CURRENT-1]}}" in
{_choices(tree, "compadd -- {words}; return")}
    esac
    case "$at" in
{_offers(tree, "compadd -- {words}")}
    esac
    [[ ${{words[CURRENT]}} == -* ]] || _files
}}
compdef _fairlead fairlead"""


def _fish(tree: CommandNode) -> str:
    lines = ["# Completion of fairlead for fish, made by `fairlead completion fish`."]
    for node in tree.walk():
        here = " ".join(f"__fish_seen_subcommand_from {word};and" for word in node.path).removesuffix(";and")
        not_below = f"not __fish_seen_subcommand_from {' '.join(child.path[-1] for child in node.children)}"
        if node.children:
            at = f"{here}; and {not_below}" if here else "__fish_use_subcommand"
            lines += [
                f"complete -c fairlead -f -n '{at}' -a {c.path[-1]} -d {_quoted(c.summary)}" for c in node.children
            ]
        for option in _options(node):
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            takes = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r" if option.value else ""
            only = f" -n '{here}'" if here else ""
            lines.append(f"complete -c fairlead{only} {names}{takes} -d {_quoted(option.help)}")
    return "\n".join(lines)


def _paths(tree: CommandNode) -> str:
    return "|".join(f'"{_path(node)}"' for node in tree.walk() if node.path)


def _choices(tree: CommandNode, action: str) -> str:
    """A case for each option that takes one of a few words."""
    return "\n".join(
        f"        {'|'.join(_at(node, name) for name in option.names)}) {action.format(words=' '.join(option.choices))} ;;"
        for node in tree.walk()
        for option in _options(node)
        if option.choices
    )


def _offers(tree: CommandNode, action: str) -> str:
    """A case for each command: the commands below it, the words that an argument may be, and its options."""
    cases: list[str] = []
    for node in tree.walk():
        words = [child.path[-1] for child in node.children]
        words += [choice for one in node.parameters if not one.is_option for choice in one.choices]
        words += [name for option in _options(node) for name in option.names]
        cases.append(f'        "{_path(node)}") {action.format(words=" ".join([*words, "--help"]))} ;;')
    return "\n".join(cases)


def _options(node: CommandNode) -> list[ParameterNode]:
    return [one for one in node.parameters if one.is_option]


def _path(node: CommandNode) -> str:
    return " ".join(("fairlead", *node.path))


def _at(node: CommandNode, name: str) -> str:
    return f'"{_path(node)} {name}"'


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ") + "'"
