"""Days of the service in virtual time, at a steady rate of submissions and with random faults: does it grow, is it exact?

    .venv/bin/python tests/simulation/soak.py --hours 72 --rate 10       # `make soak HOURS=72`

The world is that of the histories (simulated_service.py) without the disk below SQLite, whose copies of files would be
what grows. Upkeep archives and removes what is old every ten minutes, in a process of its own, as in the service. The
clients forget a job once its end was checked, so that the memory that is measured is the scheduler's and the API's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import sys
import time
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import TextIOBase
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest does

import simulated_policy  # noqa: E402
from simulate import scratch  # noqa: E402
from simulated_disk import connections_noted  # noqa: E402
from simulated_faults import FAULTS, let_decide  # noqa: E402
from simulated_history import End, check_end  # noqa: E402
from simulated_policy import registered  # noqa: E402
from simulated_service import PLAN, Client, Simulation  # noqa: E402

from fairlead.engines.requests import Cancel, Hold  # noqa: E402
from fairlead.model.cluster import parse_short_form  # noqa: E402
from fairlead.service.store.audit_file import store_audit  # noqa: E402
from fairlead.service.store.database import open_reader  # noqa: E402
from fairlead.service.store.retention import Retention, archive_old  # noqa: E402

CLUSTER = parse_short_form("v100:48x4,k80:12x4")
LONGEST = 40  # steps of a job; they are short, so that the cluster serves the rate
KEEP_S, UPKEEP_S, FAULTY_S = 3600.0, 600.0, 300.0  # how long ended jobs are kept; between upkeeps; between faults
CLEARS_S = 120.0  # after which bad weather is over
OF_THE_DISK = {"killed at a write", "power fails at a write", "killed again after each start"} | {
    "disk full",
    "disk slow",
    "sync fails",
}
PARTS = 12  # lines that report how it is


class Messages(TextIOBase):
    """What the scheduler reports: the durations of its decisions are kept."""

    def __init__(self) -> None:
        self.decisions_s: list[float] = []

    def write(self, text: str) -> int:
        if text.startswith('{"decision_s"'):
            self.decisions_s.append(json.loads(text)["decision_s"])
        return len(text)


@dataclass(frozen=True, slots=True)
class Part:
    """How the service was at the end of a part of the time."""

    hours: float
    submitted: int
    active: int
    memory_mib: float
    directory_mb: float
    archive_mb: float
    submit_ms: float  # 99th percentile of acknowledged submits
    decision_ms: float  # 99th percentile
    restarts: int
    cpu_s: float  # of this part, with the clients and the machines


class Soak(Simulation):
    """Clients that never stop, and faults one after the other, until `storm_s`."""

    most_steps = most_lives = sys.maxsize

    def __init__(self, folder: Path, hours: float, rate: float, seed: int = 0) -> None:
        self.rate, self.messages = rate, Messages()
        self.submitted = self.ended = 0
        self.waits_s: list[float] = []
        self.parts: list[Part] = []
        self._over_before: set[str] = set()  # jobs that had ended at the last upkeep
        self._ring_due = False
        self._cpu_s = time.process_time()
        super().__init__(seed, folder, storm_s=3600.0 * hours, cluster=CLUSTER, plan=replace(PLAN, keep_s=KEEP_S))

    def run(self) -> None:
        with connections_noted(self.disk), redirect_stdout(self.messages), redirect_stderr(self.messages):
            try:
                while not self._over():
                    self._live()
                self._keep_up()
                self._end_processes()
            finally:
                simulated_policy.FAILS[0] = None
                self.disk.close_all()

    # ---- what happens ----------------------------------------------------------------------------------------------

    def _draw_up(self, jobs: int) -> None:
        self._submitters = self._stream("submitters")
        self.at(0.0, self._arrive)
        self.at(FAULTY_S, self._strike_again)
        self.at(UPKEEP_S, self._keep_up)
        for part in range(1, PARTS + 1):
            self.at(self.storm_s * part / PARTS, self._report)
        self.at(self.storm_s, self._calm_down)

    def _arrive(self) -> None:
        dice = self._submitters
        client = self._client(self.submitted, dice, LONGEST)
        self.submitted += 1
        self.clients.append(client)
        began_s = time.perf_counter()
        self._submit(client)
        self.waits_s.append(time.perf_counter() - began_s)
        if dice.random() < 0.05:
            kind = dice.choice((Cancel, Hold))
            self.at(self.now_s + dice.expovariate(1 / 10), lambda: self._wish(client, kind))
        next_s = self.now_s + dice.expovariate(self.rate)
        if next_s < self.storm_s:
            self.at(next_s, self._arrive)

    def _strike_again(self) -> None:
        self._strike(self.dice.choice([name for name in FAULTS if name not in OF_THE_DISK]))
        self.at(self.now_s + CLEARS_S, self._clear)
        if self.now_s + 2 * FAULTY_S < self.storm_s:
            self.at(self.now_s + FAULTY_S, self._strike_again)

    def _clear(self) -> None:
        """Bad weather ends, and clients release what they hold."""
        self._clear_weather()
        let_decide()
        self._release_all()

    def _ring(self) -> None:
        """Requests of half a second wake the scheduler together, as they do while it decides."""
        if not self._ring_due:
            self._ring_due = True
            self.at(self.now_s + 0.5, self._wake)

    def _wake(self) -> None:
        self._ring_due, self._rung = False, True

    # ---- upkeep ----------------------------------------------------------------------------------------------------

    def _keep_up(self) -> None:
        """Archive and remove what is old, and let clients check and forget the jobs that ended some time ago."""
        clocks = self.clocks()
        child = os.fork()
        if not child:
            code = 1
            try:
                store_audit(self.directory)
                archive_old(self.directory, Retention(KEEP_S, pause_s=0.0), clocks)
                code = 0
            finally:
                os._exit(code)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            raise RuntimeError("upkeep failed")
        self._forget_ended()
        if not self.calm:
            self.at(self.now_s + UPKEEP_S, self._keep_up)

    def _forget_ended(self) -> None:
        with closing(open_reader(self.directory.events)) as log:
            rows = log.execute("SELECT id, phase, attained_gpu_s, gpus, done FROM jobs WHERE end_s IS NOT NULL")
            ends = {row[0]: End(*row[1:]) for row in rows}
        open_jobs = {job for job, _ in self.machines.open}
        left: list[Client] = []
        for client in self.clients:
            if client.id in self._over_before and client.id in ends and client.id not in open_jobs:
                check_end(client, ends)
                self._forget(client.id)
            else:
                left.append(client)
        self.clients[:] = left
        self._over_before = ends.keys() & {client.id for client in left if client.id}
        self._ended.clear()

    def _forget(self, id_: str) -> None:
        self.ended += 1
        del self.acknowledged[id_], self.jobs[id_]
        self.machines.forget(id_)

    # ---- what is measured ------------------------------------------------------------------------------------------

    def _report(self) -> None:
        waits_s, self.waits_s = sorted(self.waits_s), []
        decisions_s, self.messages.decisions_s = sorted(self.messages.decisions_s), []
        before_s, self._cpu_s = self._cpu_s, time.process_time()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        self.parts.append(
            Part(
                self.now_s / 3600.0,
                self.submitted,
                len(self.clients),
                pages * resource.getpagesize() / 2**20,
                _bytes(self.directory.path) / 1e6,
                _bytes(self.directory.archive) / 1e6,
                1000.0 * waits_s[int(0.99 * len(waits_s))],
                1000.0 * decisions_s[int(0.99 * len(decisions_s))] if decisions_s else math.nan,
                self.tally["restarts"],
                self._cpu_s - before_s,
            )
        )
        print(_line(self.parts[-1]), file=sys.__stdout__, flush=True)


def _bytes(path: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file()) if path.exists() else 0


def _line(part: Part) -> str:
    return (
        f"{part.hours:6.1f} h: {part.submitted:9,} submitted, {part.active:6,} remembered by clients, memory "
        f"{part.memory_mib:5.0f} MiB, directory {part.directory_mb:6.0f} MB (archive {part.archive_mb:5.0f} MB), p99 of "
        f"submits {part.submit_ms:.1f} ms, of decisions {part.decision_ms:.0f} ms, {part.restarts} restarts, "
        f"{part.cpu_s:.0f} CPU s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Days of the service in virtual time.")
    parser.add_argument("--hours", type=float, default=72.0)
    parser.add_argument("--rate", type=float, default=10.0, help="submissions a second")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = scratch()
    try:
        with registered():
            soak = Soak(folder, options.hours, options.rate, options.seed)
            soak.run()
    finally:
        shutil.rmtree(folder)
    faults = ", ".join(f"{name} {soak.tally[name]}" for name in sorted(FAULTS.keys() & soak.tally.keys()))
    print(f"{soak.submitted:,} jobs were submitted, {soak.ended:,} ends were checked; faults: {faults}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
