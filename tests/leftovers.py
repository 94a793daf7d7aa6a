"""Ends the processes of leases that a test has started, however the test ended."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fairlead.engines.local import shim
from fairlead.engines.local.processes import forget_groups, is_locked, kill_all
from waiting import wait_for


def end_leases(state: Path) -> None:
    """After this no lease of the state directory has a process, and none can start; call it once nothing launches any."""
    for description in state.glob("leases/*/*/lease.json"):
        directory = description.parent
        with suppress(FileNotFoundError):
            shim.claim(str(directory / shim.CLAIM), {"revoked": True})  # a shim that comes later does not run it
        wait_for(lambda directory=directory: not kill_all(directory), "the end of a lease")  # type: ignore[misc]
        wait_for(lambda alive=directory / shim.ALIVE: not is_locked(alive), "the end of a shim")  # type: ignore[misc]
        forget_groups(directory)
