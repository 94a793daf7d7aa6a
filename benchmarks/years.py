"""A year of the service in virtual time: does it grow with its age?

The store, the state, retention and the audit are those of the service; arrivals, starts, reports and ends come from a
simple rule instead of a policy and an engine, because deciding is measured elsewhere. Upkeep runs in processes of its
own, as in the service, so that the memory that is measured is the scheduler's.

`python -m benchmarks.years [JOBS]` simulates that many jobs over the year (default 1,000,000).
"""

from __future__ import annotations

import heapq
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.engines.clock import MachineClocks
from fairlead.engines.requests import Command
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, Event, Finished, Progress, Started
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import ENDED
from fairlead.rounds.journal import Header
from fairlead.rounds.loop import Settings, When, settings_to_json
from fairlead.service.store import request_queue
from fairlead.service.store.audit_file import store_audit
from fairlead.service.store.database import open_writer, transaction
from fairlead.service.store.directory import StateDirectory, make, open_directory
from fairlead.service.store.log import DAY_S, Log, open_log
from fairlead.service.store.retention import Retention, archive_old
from fairlead.service.store.tables import EVENTS, REQUESTS
from fairlead.traces.profiles import load_default_profile

JOBS = 1_000_000
CLUSTER = "v100:200x8,p100:200x8"  # 400 GPUs
STEP_S, YEAR_S, MONTH_S, REPORT_S = 3600.0, 365 * DAY_S, 365 * DAY_S / 12, 3600.0
UPKEEP_S = 3 * DAY_S  # the service does it every 2,000 records; more often costs more and shows nothing else
TENANTS, MODELS = 100, ("resnet-50", "bert", "transformer", "a-model-of-our-own")
WITH_LEASES = 10  # one of this many jobs leaves a directory with a log of a kilobyte
MOST_BYTES, MOST_RESTART_S, MOST_AUDIT_S, MOST_GROWTH = 2e9, 5.0, 1.0, 0.1


@dataclass(frozen=True, slots=True)
class Month:
    """What was measured at the end of a month."""

    number: int
    jobs: int
    memory_mib: float
    directory_mb: float
    archive_mb: float
    restart_s: float  # CPU time of a process that opens the log, imports included
    audit_s: float  # the same for an audit, as /v1/audit starts it
    commit_ms: float  # 99th percentile of the commits of the month


@dataclass
class Year:
    """The scheduler's side: what happens in each step."""

    directory: StateDirectory
    log: Log
    requests: Any
    random: np.random.Generator
    now_s: float = 0.0
    waiting: deque[str] = field(default_factory=deque)
    running: list[tuple[float, str]] = field(default_factory=list)  # (end, job), a heap
    commits_s: list[float] = field(default_factory=list)
    submitted: int = 0
    forgot_s: float = 0.0

    def step(self, arrivals: int) -> None:
        self.now_s += STEP_S
        self._finish()
        self._arrive(arrivals)
        self._start()
        began_s = time.perf_counter()
        self.log.commit(self.submitted)
        self.commits_s.append(time.perf_counter() - began_s)
        if self.log.snapshot_due or self.now_s - self.forgot_s >= DAY_S:
            self.forgot_s, state = self.now_s, self.log.state
            ended = np.flatnonzero(np.isin(state.phase[: state.jobs], ENDED))
            if ended.size:
                self.log.forget(ended)
            self.log.snapshot()

    def _fold(self, event: Event) -> None:
        self.log.event(event)
        self.log.state.fold(event)

    def _positions(self, jobs: list[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array(sorted(self.log.state.position[job] for job in jobs), dtype=np.int64)

    def _finish(self) -> None:
        over: list[str] = []
        while self.running and self.running[0][0] <= self.now_s:
            over.append(heapq.heappop(self.running)[1])
        if over:
            self._fold(Finished(self.now_s, self._positions(over), np.full(len(over), 1000.0)))
        if self.running and self.now_s % REPORT_S == 0:
            at = self._positions([job for _, job in self.running])
            self._fold(Progress(self.now_s, at, self.log.state.done[at] + 10.0, np.full(len(at), 0.01)))

    def _arrive(self, arrivals: int) -> None:
        with transaction(self.requests):
            for _ in range(arrivals):
                number = self.submitted
                gpus = int(self.random.choice((1, 1, 2, 4)))
                spec = JobSpec("new", f"tenant-{number % TENANTS}", MODELS[number % len(MODELS)], 0.0, gpus, None)
                command = Command("python train.py --epochs 90")
                id_ = request_queue.submit(self.requests, "year", request_queue.Submission("train", spec, command))
                self.submitted = int(id_[1:])
                self.waiting.append(id_)
                self._fold(Arrived(self.now_s, JobSpec(id_, spec.tenant, spec.model, self.now_s, gpus, None)))

    def _start(self) -> None:
        state, free = self.log.state, self.log.state.node_free.copy()
        starts: dict[int, tuple[tuple[int, int], ...]] = {}
        while self.waiting:
            j = state.position[self.waiting[0]]
            room = np.flatnonzero(free >= state.width[j])
            if not room.size:
                break
            node, gpus = int(room[0]), int(state.width[j])
            free[node] -= gpus
            starts[j] = ((node, gpus),)
            job = self.waiting.popleft()
            heapq.heappush(self.running, (self.now_s + float(self.random.exponential(2 * 3600.0)), job))
            self._leave_lease(job)
        at = np.array(sorted(starts), dtype=np.int64)
        spots = tuple(starts[j] for j in at.tolist())
        decision = Decision(self.now_s, Cause.ROUND, at[:0], at, spots, self.now_s, "rule", None)
        self.log.decision(decision)
        state.fold(decision)
        if at.size:
            self._fold(Started(self.now_s, at, np.full(len(at), 0.01), np.full(len(at), self.now_s), measured=False))

    def _leave_lease(self, job: str) -> None:
        if int(job[1:]) % WITH_LEASES == 0:
            lease = self.directory.leases / job / "1"
            lease.mkdir(parents=True)
            (lease / "log").write_text(f"{job} epoch loss\n" * 50)
            (lease / "exit.json").write_text('{"code": 0}')


def run(jobs: int = JOBS) -> None:
    print(f"{jobs:,} jobs of {TENANTS} tenants in a year on {CLUSTER}, kept for 30 days", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        months = live(Path(folder) / "state", jobs)
    last, most = months[-1], max(month.memory_mib for month in months[1:])
    growth = most / months[1].memory_mib - 1.0
    print(f"state directory: {last.directory_mb:,.0f} MB (target 2,000: {_met(last.directory_mb < MOST_BYTES / 1e6)})")
    print(f"memory from month 2: {growth:+.1%} (target within 10 %: {_met(growth <= MOST_GROWTH)})")
    for name, worst_s, target_s in (
        ("restart", max(month.restart_s for month in months), MOST_RESTART_S),
        ("audit", max(month.audit_s for month in months), MOST_AUDIT_S),
    ):
        print(f"{name}, slowest: {worst_s:.2f} s (target {target_s:g} s: {_met(worst_s < target_s)})")


def live(path: Path, jobs: int) -> list[Month]:
    directory = open_directory(path)
    settings = settings_to_json(Settings(60.0, When.EVENTS, 60.0))
    more = {"sensing": "three-layer", "unmeasured": True}
    make(directory, Header(parse_short_form(CLUSTER), load_default_profile(), None, "fifo", {}, settings, {}, more))
    requests, events = open_writer(directory.requests, REQUESTS), open_writer(directory.events, EVENTS)
    now = [0.0]
    log = open_log(events, MachineClocks(wall=lambda: now[0], steady=lambda: now[0]))
    year, months = Year(directory, log, requests, np.random.default_rng(1)), list[Month]()
    upkeep_s, submitted, steps = 0.0, 0, int(YEAR_S / STEP_S)
    for number in range(1, steps + 1):
        due = jobs * number // steps
        year.step(due - submitted)
        submitted, now[0] = due, year.now_s
        month_ends = year.now_s >= (len(months) + 1) * MONTH_S - 1.0
        if year.now_s - upkeep_s >= UPKEEP_S or month_ends:
            upkeep_s = year.now_s
            _upkeep(directory, year.now_s)
        if month_ends:
            months.append(_measure(directory, year, len(months) + 1, submitted))
            _print(months[-1])
    requests.close()
    events.close()
    return months


def _upkeep(directory: StateDirectory, now_s: float) -> None:
    """In a process of its own, with the virtual time as its clock."""
    child = os.fork()
    if not child:
        code = 1
        try:
            store_audit(directory)
            archive_old(directory, Retention(pause_s=0.0), MachineClocks(wall=lambda: now_s))
            code = 0
        finally:
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise RuntimeError("upkeep failed")


def _measure(directory: StateDirectory, year: Year, number: int, jobs: int) -> Month:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    commits_s, year.commits_s = sorted(year.commits_s), []
    return Month(
        number,
        jobs,
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        _bytes(directory.path) / 1e6,
        _bytes(directory.archive) / 1e6,
        _seconds("-c", _OPEN, str(directory.path)),
        _seconds("-m", "fairlead.service.api.audit", str(directory.path)),
        commits_s[int(0.99 * len(commits_s))] * 1e3,
    )


_OPEN = """
import sys
from pathlib import Path
from fairlead.service.store import request_queue
from fairlead.service.store.database import open_reader, open_writer
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.log import open_log
from fairlead.service.store.tables import EVENTS
directory = StateDirectory(Path(sys.argv[1]))
log = open_log(open_writer(directory.events, EVENTS))
request_queue.unanswered(open_reader(directory.requests), log.taken, log.state)
"""


def _seconds(*command: str) -> float:
    """CPU seconds of a process: on a busy machine, about the wall clock of a quiet one."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return used.ru_utime + used.ru_stime


def _bytes(path: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file()) if path.exists() else 0


def _print(month: Month) -> None:
    print(
        f"month {month.number:2}: {month.jobs:9,} jobs, scheduler {month.memory_mib:5.0f} MiB, directory "
        f"{month.directory_mb:6.0f} MB (archive {month.archive_mb:5.0f} MB), restart {month.restart_s:.2f} s, audit "
        f"{month.audit_s:.2f} s, p99 of commits {month.commit_ms:.1f} ms",
        flush=True,
    )


def _met(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    run(*map(int, sys.argv[1:]))
