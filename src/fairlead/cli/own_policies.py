"""Policies of the user's own that a journal or a state directory names, for commands that read one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

PolicyFile = Annotated[
    list[str] | None,
    typer.Option(
        "--policy-file", help="A policy of your own that decided in the journal; repeatable.", metavar="FILE.py:NAME"
    ),
]


def register_files(files: Iterable[str] | None) -> None:
    """Make the policies known under their names, which is how journals refer to them."""
    from fairlead.policies import register
    from fairlead.studies.policy_lab.plugins import load_policy

    for file in files or ():
        register(load_policy(file))
