"""Start estimates beside the scheduler, within a part of one CPU.

`python -m fairlead.service.process.estimating DIRECTORY [POLICY_FILE...]` makes them once, with the lowest priority. It
reads the state and writes one file; it may be killed at any instant.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fairlead.model.errors import FairleadError
from fairlead.service.store.database import DATABASE_ERROR
from fairlead.service.store.directory import StateDirectory, read_directory
from fairlead.service.store.estimates_file import StartEstimate, StartEstimates, read_estimates, write_estimates

CHECK_S = 10.0
OLDEST_S = 300.0  # after this time estimates are made again even if nothing was recorded since
MOST_CPU_S = 120.0  # after this, the futures that are there must do
PARENT_CHECK_S = 1.0
WEEK_S = 604_800.0
LONGEST_S = 1800.0  # a process that takes longer is ended; the machine has no time for it


class Estimating:
    """Makes estimates again and again while jobs wait, in a process of its own, for `part` of one CPU's time.

    `waiting` returns the number of jobs that wait, and `last_seq` that of the last record.
    """

    def __init__(
        self,
        directory: StateDirectory,
        part: float,
        waiting: Callable[[], int],
        last_seq: Callable[[], int],
        policy_files: Sequence[str] = (),
        check_s: float = CHECK_S,
    ) -> None:
        self._command = [sys.executable, "-m", __name__, str(directory.path), *policy_files]
        self._directory, self._part, self._check_s = directory, part, check_s
        self._waiting, self._last_seq = waiting, last_seq
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_fresh, name="estimates", daemon=True)

    def start(self) -> None:
        if self._part > 0:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        process = self._process
        if process is not None:
            process.terminate()
        if self._thread.ident is not None:
            self._thread.join(timeout=30)

    def _keep_fresh(self) -> None:
        seen, made_s, again_s = -1, -OLDEST_S, 0.0
        while not self._stopping.wait(self._check_s):
            now_s = time.monotonic()
            if now_s < again_s:
                continue
            try:
                last, waiting = self._last_seq(), self._waiting()
            except DATABASE_ERROR:  # it is locked; the next time will do
                continue
            if waiting and (last != seen or now_s - made_s >= OLDEST_S):
                seen, made_s, again_s = last, now_s, now_s + self._run() / self._part

    def _run(self) -> float:
        """Make estimates once; returns the CPU seconds that it took."""
        began_s = time.monotonic()
        with suppress(OSError, subprocess.TimeoutExpired):  # no process left, or no time; the next time will do
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
            if self._stopping.is_set():
                self._process.terminate()
            try:
                code = self._process.wait(LONGEST_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise
            estimates = read_estimates(self._directory)
            if code == 0 and estimates is not None:
                return estimates.cpu_s
        return time.monotonic() - began_s


def estimate_once(directory: StateDirectory, spent_s: float = 0.0) -> StartEstimates:
    """Make estimates from the state of the log, and write them to their file. `spent_s` CPU seconds count already."""
    before_s = time.process_time() - spent_s
    from fairlead.studies.runs.origin import service_origin
    from fairlead.studies.what_if.estimates import HORIZON_S, start_ranges
    from fairlead.studies.what_if.learning import (
        PendingEstimate,
        experience_from_json,
        experience_to_json,
        first_starts_s,
        widened,
    )

    header, state = read_directory(directory.path)
    origin = service_origin("service", header, state)
    starts = start_ranges(origin, is_enough=lambda: time.process_time() - before_s > MOST_CPU_S)
    now_s = state.now_s
    before = read_estimates(directory)
    past = experience_from_json({} if before is None else before.experience)
    past = past.after(first_starts_s(state))  # what has started since shows first how far to widen
    shown = {job: widened(one, past.widening()) for job, one in starts.ranges.items()}
    waiting = {job: PendingEstimate(now_s, one, shown[job]) for job, one in starts.ranges.items()}
    held, checked = past.held_since(now_s - WEEK_S)
    rows = tuple(
        StartEstimate(
            job,
            state.specs[state.position[job]].tenant,
            None if one.low_s is None else now_s + one.low_s,
            None if one.high_s is None else now_s + one.high_s,
        )
        for job, one in shown.items()
    )
    cpu_s = time.process_time() - before_s
    estimates = StartEstimates(now_s, now_s + HORIZON_S, header.policy, starts.chance, cpu_s, rows, starts.reason)
    experience = experience_to_json(past.with_pending(waiting))
    estimates = replace(estimates, held=held, checked=checked, experience=experience)
    write_estimates(directory, estimates)
    return estimates


def main(path: str, *policy_files: str) -> int:
    os.nice(19)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    from fairlead.policies import register
    from fairlead.studies.policy_lab.plugins import load_policy

    try:
        for file in policy_files:
            register(load_policy(file))
        estimate_once(StateDirectory(Path(path)), spent_s=time.process_time())
    except (FairleadError, OSError) as error:
        print(f"fairlead: no start estimates: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _end_with(parent: int) -> None:
    """End this process once the service has ended, even if it was killed: nobody would read the estimates."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
