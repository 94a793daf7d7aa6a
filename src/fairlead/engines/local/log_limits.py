"""Logs of leases, which are cut at the limits of their tenants."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from fairlead.engines.leases import Key
from fairlead.engines.local import shim
from fairlead.engines.local.files import lease_directory, read_lease


class LogLimits:
    """The limits of the leases below `root` that were looked at last; each is that of its launch."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._bytes: dict[Key, int | None] = {}

    def apply(self, leases: Iterable[Key]) -> None:
        """Cut the logs of these leases, and forget the limits of all others."""
        known, self._bytes = self._bytes, {}
        for key in leases:
            directory = lease_directory(self._root, key)
            if key not in known:
                lease = read_lease(directory, key)
                known[key] = None if lease is None else lease.log_bytes
            self._bytes[key] = most = known[key]
            if most is not None:
                cut_log(directory / shim.LOG, most)


def cut_log(path: Path, most: int) -> None:
    """Cut a log that has become too long, and say so in its last line.

    The job is not disturbed: it appends, so that what it writes next comes after that line, until the next cut.
    """
    notice = (
        f"\nfairlead: the log ends here, because it has reached its limit of {most} bytes; the job is not affected\n"
    ).encode()
    try:
        if os.lstat(path).st_size <= most + len(notice):
            return
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # it has not begun yet
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return
        if os.pread(descriptor, len(notice), most) != notice:
            os.ftruncate(descriptor, most)
            os.pwrite(descriptor, notice, most)
        os.ftruncate(descriptor, most + len(notice))
    finally:
        os.close(descriptor)
