"""What a check of an installation found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `ok` is None if something is absent or unusual that is not needed."""

    check: str
    ok: bool | None
    found: str
    remedy: str = ""
