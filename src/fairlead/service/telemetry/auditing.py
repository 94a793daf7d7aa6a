"""The fairness audit for the metrics: made in a process of its own, while somebody reads metrics.

`python -m fairlead.service.telemetry.auditing DIRECTORY` prints the audit as JSON, with the lowest priority.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.service.store.audit_file import audit_log
from fairlead.service.store.database import DATABASE_ERROR
from fairlead.service.store.directory import StateDirectory

EVERY_S = 60.0  # at most
PART = 0.05  # of one CPU's time
READ_S = 900.0  # metrics that nobody has read for this long need no audit
LONGEST_S = 1800.0


class MetricsAudit:
    """The last audit, as `RunAudit.to_json` has it, and when it was made. `last_seq` returns the number of the last record."""

    def __init__(self, directory: StateDirectory, last_seq: Callable[[], int], every_s: float = EVERY_S) -> None:
        self._command = [sys.executable, "-m", __name__, str(directory.path)]
        self._last_seq, self._every_s = last_seq, every_s
        self.newest: tuple[float, dict[str, Any]] | None = None
        self.failures = 0
        self._read_s = -READ_S
        self._wanted, self._stopping = threading.Event(), threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_fresh, name="metrics audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()
        process = self._process
        if process is not None:
            process.kill()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)

    def want(self) -> None:
        """Somebody reads metrics now."""
        self._read_s = time.monotonic()
        self._wanted.set()

    def _keep_fresh(self) -> None:
        seen = -1
        while self._wanted.wait() and not self._stopping.is_set():
            if time.monotonic() - self._read_s > READ_S:
                self._wanted.clear()
                continue
            took_s = 0.0
            with suppress(DATABASE_ERROR):  # it is locked; the next time will do
                last = self._last_seq()
                if last != seen:
                    took_s = self._run()
                    seen = last
            self._stopping.wait(max(self._every_s, took_s / PART))

    def _run(self) -> float:
        """Make an audit; returns how long it took."""
        began_s = time.monotonic()
        try:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            if self._stopping.is_set():
                self._process.kill()
            try:
                output, _ = self._process.communicate(timeout=LONGEST_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                output, _ = self._process.communicate()
            if self._process.returncode == 0:
                self.newest = time.time(), json.loads(output)
            elif not self._stopping.is_set():
                self.failures += 1
        except (OSError, ValueError):  # no process left, or an answer that is cut off
            self.failures += 1
        return time.monotonic() - began_s


if __name__ == "__main__":
    os.nice(19)
    print(json.dumps(audit_log(StateDirectory(Path(sys.argv[1]))).to_json()))
