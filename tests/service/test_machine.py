"""Random histories with crashes at every commit and every launch: the log, the leases and the tables never disagree."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import defaultdict
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

from fairlead.engines.clock import MachineClocks
from fairlead.engines.leases import Lease
from fairlead.engines.live import LiveEngine
from fairlead.engines.pretend.runner import ASKED, RECORD, PretendRunner
from fairlead.engines.requests import Cancel, Command, Hold, Release, SetPolicy, SetTenant
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.policies import ROUND_POLICIES
from fairlead.rounds.loop import Settings, When, run
from fairlead.rounds.snapshot import dump
from fairlead.service.process.scheduler import DurableEngine
from fairlead.service.store import archive, commits, request_queue, retention
from fairlead.service.store.archive import archived_jobs, archived_records, segments
from fairlead.service.store.audit_file import audit_log, store_audit
from fairlead.service.store.database import open_reader, open_writer
from fairlead.service.store.directory import make, open_directory
from fairlead.service.store.log import Log, header_of, open_log, read_records
from fairlead.service.store.log_beginning import base_of
from fairlead.service.store.tables import EVENTS, REQUESTS
from fairlead.studies.fairness.journal_audit import Auditor
from serving import header

SETTINGS = Settings(10.0, When.EVENTS, 5.0)
FORGET_EVERY_S = 8.0
RETENTION = retention.Retention(25.0, least_records=1, patience_s=0.0, rows=2, pause_s=0.0)


class Crash(BaseException):
    """As sudden as kill -9."""


@dataclass
class Asked:
    seconds: float
    cancelled: bool = False
    held: bool = False


class Bomb:
    """Goes off at the n-th dangerous moment, just before or just after the deed."""

    def __init__(self, moment: int | None, after: bool) -> None:
        self.left, self.after = moment, after

    def around(self, deed: Any) -> Any:
        def dangerous(*args: Any, **more: Any) -> Any:
            goes_off = self.left == 0
            self.left = None if self.left is None else self.left - 1
            if goes_off and not self.after:
                raise Crash
            result = deed(*args, **more)
            if goes_off:
                raise Crash
            return result

        return dangerous


class History(RuleBasedStateMachine):
    jobs = Bundle("jobs")

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        self.directory = open_directory(self.folder / "state")
        make(self.directory, header("v100:3,k80:2"))
        self.writer = open_writer(self.directory.requests, REQUESTS)
        self.now_s = 1000.0
        self.asked: dict[str, Asked] = {}

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            try:
                self.settle()
            finally:
                self.writer.close()
                shutil.rmtree(self.folder)

    # ---- what people do -----------------------------------------------------------------------------------------

    @rule(
        target=jobs,
        seconds=st.sampled_from((0.0, 3.0, 30.0)),
        gpus=st.sampled_from((1, 1, 2)),
        tenant=st.sampled_from("ab"),
    )
    def submit(self, seconds: float, gpus: int, tenant: str) -> str:
        spec = JobSpec("new", tenant, "mine", 0.0, gpus, None)
        submission = request_queue.Submission("job", spec, Command(f"sleep {seconds}"))
        id_ = request_queue.submit(self.writer, "x", submission)
        assert id_ not in self.asked
        self.asked[id_] = Asked(seconds)
        return id_

    @rule(job=jobs)
    def cancel(self, job: str) -> None:
        request_queue.append(self.writer, "x", Cancel(job))
        self.asked[job].cancelled = True

    @rule(job=jobs)
    def hold(self, job: str) -> None:
        request_queue.append(self.writer, "x", Hold(job))
        self.asked[job].held = True

    @rule(job=jobs)
    def release(self, job: str) -> None:
        request_queue.append(self.writer, "x", Release(job))
        self.asked[job].held = False

    @rule(weight=st.sampled_from((1.0, 2.0)))
    def weigh(self, weight: float) -> None:
        request_queue.append(self.writer, "x", SetTenant("a", weight))

    @rule(policy=st.sampled_from(("fifo", "las", "oef-coop")))
    def switch(self, policy: str) -> None:
        request_queue.append(self.writer, "x", SetPolicy(policy))

    @rule(seconds=st.sampled_from((0.5, 4.0, 12.0, 40.0)))
    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(moment=st.integers(0, 12), after=st.booleans())
    def live_until_it_crashes(self, moment: int, after: bool) -> None:
        with suppress(Crash):
            self.live(Bomb(moment, after))

    @rule(snapshot=st.booleans())
    def live_in_peace(self, snapshot: bool) -> None:
        self.live(Bomb(None, False), snapshot)

    @rule(moment=st.integers(0, 12), after=st.booleans())
    def archive_until_it_crashes(self, moment: int, after: bool) -> None:
        with suppress(Crash):
            self.archive(Bomb(moment, after))

    def archive(self, bomb: Bomb) -> None:
        """Everything that is old enough goes into the archive."""
        deeds = ((archive, "_write_lines"), (archive, "_write_whole"), (commits, "transaction"))
        with pytest.MonkeyPatch.context() as patch:
            for module, name in deeds:
                patch.setattr(module, name, bomb.around(getattr(module, name)))
            now = MachineClocks(wall=lambda: self.now_s)
            retention.archive_old(self.directory, RETENTION, now)

    # ---- the scheduler ------------------------------------------------------------------------------------------

    def live(self, bomb: Bomb, snapshot: bool = False) -> None:
        """A scheduler from its start until it has nothing more to do."""
        connection = open_writer(self.directory.events, EVENTS)
        runner = PretendRunner(self.folder, lambda: self.now_s)
        try:
            log = open_log(connection)
            log._write = bomb.around(log._write)  # type: ignore[method-assign]
            runner.launch = bomb.around(runner.launch)  # type: ignore[method-assign]
            runner.ask_to_stop = bomb.around(runner.ask_to_stop)  # type: ignore[method-assign]
            again = request_queue.unanswered(self.writer, log.taken, log.state)
            inbox = request_queue.StoredInbox(self.writer, log, again, lambda timeout_s: False)
            engine = LiveEngine(log.state, runner, inbox, self.command_of, lambda: self.now_s)
            engine.resume()
            while not inbox.closed:
                durable = DurableEngine(engine, log, inbox, FORGET_EVERY_S)
                run(durable, log.state, ROUND_POLICIES[log.policy[0]], SETTINGS, log)
            log.commit(inbox.taken)
            if snapshot:
                log.snapshot()
        finally:
            connection.close()

    def command_of(self, job: str) -> Command:
        return request_queue.command_of(self.writer, job)

    # ---- accounting ---------------------------------------------------------------------------------------------

    def settle(self) -> None:
        for _ in range(60):
            self.now_s += 11.0
            self.live(Bomb(None, False))
            if all(self.phase(id_) in ENDS[asked.cancelled, asked.held] for id_, asked in self.asked.items()):
                break
        for _ in range(2):  # ended jobs are forgotten, and then that is old
            self.now_s += RETENTION.keep_s
            self.live(Bomb(None, False))
            self.archive(Bomb(None, False))
        ended = [id_ for id_ in self.asked if self.phase(id_) != Phase.HELD]
        assert self.count("archived") == len(ended)
        connection = open_writer(self.directory.events, EVENTS)
        log = open_log(connection)
        for id_, asked in self.asked.items():
            assert self.phase(id_) in ENDS[asked.cancelled, asked.held], (id_, asked)
        self.check_tables(log)
        self.check_leases(log)
        self.check_archive(log)
        connection.execute("DELETE FROM snapshots")
        assert dump(open_log(connection).state) == dump(log.state)
        connection.close()

    def phase(self, id_: str) -> int | None:
        connection = open_writer(self.directory.events, EVENTS)
        row = connection.execute("SELECT phase FROM jobs WHERE id = ?", (id_,)).fetchone()
        connection.close()
        if row is None:
            row = self.writer.execute("SELECT phase FROM archived WHERE id = ?", (id_,)).fetchone()
        return None if row is None else Phase[row[0].upper()]

    def check_tables(self, log: Log) -> None:
        state, connection = log.state, log._connection
        rows = connection.execute("SELECT id, phase, gpus, leases FROM jobs ORDER BY position").fetchall()
        archived = [row[0] for row in self.writer.execute("SELECT id FROM archived")]
        taken = [row[0] for row in self.writer.execute("SELECT id FROM jobs ORDER BY number")]
        assert [row[0] for row in rows] == taken
        assert sorted((*archived, *taken)) == sorted(self.asked)
        assert sum(row[0] for row in connection.execute("SELECT jobs FROM archived_use")) == len(archived)
        assert state.jobs + state.forgotten == len(self.asked)
        assert [tuple(row) for row in rows if row[0] in state.position] == [
            (spec.id, Phase(int(state.phase[j])).name.lower(), state.held_gpus[j], state.leases[j])
            for j, spec in enumerate(state.specs)
        ]
        free = [row[0] for row in connection.execute("SELECT free FROM nodes ORDER BY position")]
        assert free == state.node_free.tolist()

    def check_archive(self, log: Log) -> None:
        """Archive and log together are the whole history, and its audit does not depend on where it was cut."""
        with closing(open_reader(self.directory.events)) as events:
            whole = Auditor.of(header_of(events))
            for seq, record in archived_records(self.directory, 0, base_of(events), whole.state):
                whole.fold(record)
                assert seq <= base_of(events)
            for _, record in read_records(events, whole.state, after=base_of(events)):
                whole.fold(record)
        assert dump(whole.state) == dump(log.state)
        jobs = [job["id"] for one in segments(self.directory) for job in archived_jobs(self.directory, one)]
        assert len(set(jobs)) == len(jobs) == whole.state.jobs + whole.state.forgotten - self.count("jobs")
        assert audit_log(self.directory) == whole.audit()
        store_audit(self.directory)
        assert audit_log(self.directory) == whole.audit()

    def count(self, table: str) -> int:
        return int(self.writer.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def check_leases(self, log: Log) -> None:
        """No job ran in two places at once, none ran again after it had finished, and no slot was used twice."""
        runs: dict[str, list[tuple[int, float, float, bool]]] = defaultdict(list)
        slots: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        for path in self.folder.glob(f"leases/*/*/{RECORD}"):
            record = json.loads(path.read_text())
            lease: dict[str, Any] = record["lease"]
            asked = path.with_name(ASKED)
            end_s = float(asked.read_text()) if asked.exists() else record["ends_s"]
            begin_s = record["ends_s"] - self.asked[lease["job"]].seconds
            runs[lease["job"]].append((lease["number"], begin_s, end_s, not asked.exists()))
            for gpu in lease["gpus"]:
                slots[gpu["node"], gpu["slot"]].append((begin_s, end_s))
        for times in slots.values():
            assert all(one[1] <= two[0] + 1e-6 for one, two in pairwise(sorted(times)))
        for id_, leases in runs.items():
            intervals = [interval for _, *interval in sorted(leases)]
            assert all(one[1] <= two[0] + 1e-6 for one, two in pairwise(intervals)), (id_, intervals)
            assert not any(finished_there for _, _, finished_there in intervals[:-1]), (id_, intervals)
            finished = self.phase(id_) == Phase.FINISHED
            assert finished <= intervals[-1][2], (id_, intervals)


# (cancelled, held) -> where the job may end up; a job may have finished before it was asked.
ENDS = {
    (False, False): (Phase.FINISHED,),
    (False, True): (Phase.HELD, Phase.FINISHED),
    (True, False): (Phase.CANCELLED, Phase.FINISHED),
    (True, True): (Phase.CANCELLED, Phase.FINISHED),
}

TestHistory = History.TestCase
TestHistory.settings = settings(settings.get_profile("fairlead"), max_examples=25, stateful_step_count=30)


def test_a_lease_is_pretended_again_after_a_restart(tmp_path: Path) -> None:
    now_s = 0.0
    runner = PretendRunner(tmp_path, lambda: now_s)
    lease = Lease("j1", 1, (), Command("sleep 5"))
    runner.launch(lease)

    again = PretendRunner(tmp_path, lambda: now_s)
    assert again.recall(("j1", 1)) == lease
    now_s = 5.0
    assert again.look([("j1", 1)]).sights["j1", 1].code == 0
