"""Errors that users can cause, each with the exit code that the command line returns for it.

A message states what was found, what was expected and what to do. Our own mistakes are not here: they crash.
"""

from __future__ import annotations


class FairleadError(Exception):
    """A problem that the user can fix."""

    exit_code = 1


class InputError(FairleadError):
    """A file, an option or a value that cannot be used; carries the file and line where it is."""

    exit_code = 2

    def __init__(self, message: str, *, path: str | None = None, line: int | None = None) -> None:
        place = "" if path is None else f"{path}: " if line is None else f"{path} line {line}: "
        super().__init__(place + message)
        self.message, self.path, self.line = message, path, line

    def at(self, path: str, line: int | None = None) -> InputError:
        """The same error, with the place that the caller knows."""
        return InputError(self.message, path=path, line=line)


class NotFoundError(FairleadError):
    exit_code = 3


class InterruptedByUserError(FairleadError):
    """Ctrl-C in a command that can continue later; the message says how."""

    exit_code = 130  # as of every program that is interrupted


class ImpossibleError(FairleadError):
    """Jobs that can never run on this cluster."""

    exit_code = 5


class BrokenInvariantError(AssertionError):
    """A bug in Fairlead: a decision, an event or a transition that must not occur."""
