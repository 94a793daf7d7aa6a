"""Waiting for what a test needs, for as long as it takes. The limit is a last resort that ends a hang and says of what."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 600.0  # far beyond what a machine with a load of sixteen on two cores needs
PATIENCE_MS = 1000 * PATIENCE_S  # for Playwright
_PAUSE_S = 0.02


def wait_for(true: Callable[[], object], what: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < give_up_s, f"waited {PATIENCE_S:g} s in vain: {what}"
        time.sleep(_PAUSE_S)


def until_told(over: object) -> str:
    """A shell command that runs until the file `over` is there."""
    return f"until [ -e {over} ]; do sleep 0.2; done"
