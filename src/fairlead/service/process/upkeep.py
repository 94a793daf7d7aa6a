"""Upkeep beside the scheduler: the audit is brought up to date, and what is old goes into the archive.

`python -m fairlead.service.process.upkeep DIRECTORY KEEP_S EPOCH` does it once, with low priority. It may be killed at any
instant and started again at any time; a second one at the same time does nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fairlead.model.errors import FairleadError
from fairlead.service.store.database import DATABASE_ERROR, StoreError
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.retention import keep_up

CHECK_S = 30.0
RECORDS = 2000  # after this many new records upkeep is due, so that an audit has no more than these to fold
EVERY_S = 3600.0  # and after this time in any case


class Upkeep:
    """Runs upkeep whenever it is due, in a process of its own, for the service of this epoch of requests.db.

    `last_seq` returns the number of the last record.
    """

    def __init__(self, directory: StateDirectory, keep_s: float, epoch: int, last_seq: Callable[[], int]) -> None:
        self._command = [sys.executable, "-m", __name__, str(directory.path), repr(keep_s), str(epoch)]
        self._last_seq = last_seq
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_up, name="upkeep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        process = self._process
        if process is not None:
            process.terminate()
        if self._thread.ident is not None:  # a scheduler that refuses its start ends the service before upkeep begins
            self._thread.join(timeout=30)

    def _keep_up(self) -> None:
        seen, idle_s = 0, EVERY_S
        while not self._stopping.wait(CHECK_S):
            idle_s += CHECK_S
            try:
                last = self._last_seq()
            except DATABASE_ERROR:  # it is locked, or the disk is full; the next time will do
                continue
            if last - seen >= RECORDS or idle_s >= EVERY_S:
                self._run()
                seen, idle_s = last, 0.0

    def _run(self) -> None:
        with suppress(OSError):  # no process left; the next time will do
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
            if self._stopping.is_set():
                self._process.terminate()
            self._process.wait()


def main(path: str, keep_s: str, epoch: str) -> int:
    os.nice(10)
    directory = StateDirectory(Path(path))
    try:
        lock = directory.lock("upkeep")
    except StoreError:
        return 0  # another one is at it
    try:
        keep_up(directory, float(keep_s), int(epoch))
    except (FairleadError, OSError) as error:
        print(f"fairlead: upkeep has to wait: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
