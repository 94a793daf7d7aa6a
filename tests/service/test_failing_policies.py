"""A policy may fail; the service may not: every way to fail, against a real daemon, and how a daemon ends."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from failing_policy import WAYS

from daemons import insist
from fairlead.model.errors import InputError
from fairlead.policies import register
from fairlead.service.client import Client, RefusedError, UnreachableError
from fairlead.service.process.ending import ENDED_WITHIN_S
from fairlead.studies.journals.replaying import replay_journal
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow
FILE = f"{Path(__file__).parent / 'failing_policy.py'}:POLICY"
JOB = {"name": "long", "run": "sleep 36000"}


class Daemon:
    """`fairlead serve` with jobs that only take time, on more nodes than a policy is tried with."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.state = folder, folder / "state"
        self.start(*options)

    def start(self, *options: str) -> None:
        (self.folder / "credentials.json").unlink(missing_ok=True)
        command = [sys.executable, "-m", "fairlead.cli.main", "serve", "--cluster", "v100:4x2,k80:2x1"]
        command += ["--state", str(self.state), "--port", "0", "--engine", "pretend", "--round", "1s", "--new-token"]
        environment = {**os.environ, "FAIRLEAD_CREDENTIALS": str(self.folder / "credentials.json")}
        with (self.folder / "serve.log").open("ab") as log:
            self.process = subprocess.Popen([*command, *options], stdout=log, stderr=log, env=environment)
        wait_for(lambda: (self.folder / "credentials.json").exists() or self.ended(), "a start")
        assert not self.ended(), self.log()
        self.client = Client.saved_in(self.folder / "credentials.json")
        insist(lambda: self.client.get("/status"))

    def ended(self) -> bool:
        return self.process.poll() is not None

    def log(self) -> str:
        return (self.folder / "serve.log").read_text()

    def status(self) -> Any:
        return insist(lambda: self.client.get("/status"))

    def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = insist(lambda: self.client.get("/health"))
        return answer

    def scheduler(self) -> int:
        return int((self.state / "scheduler.lock").read_text())

    def deciders(self) -> list[int]:
        """The children that decide: forks of the scheduler."""
        children = Path(f"/proc/{self.scheduler()}/task/{self.scheduler()}/children").read_text().split()
        return [int(pid) for pid in children if b"process.scheduler" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it, and see that it took no longer than was promised."""
        pids = [self.scheduler(), *self.deciders()]
        began_s = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        assert time.monotonic() - began_s < ENDED_WITHIN_S + 10.0
        wait_for(lambda: not any(map(_runs, pids)), f"the end of {pids}")


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Daemon]:
    daemon = Daemon(folder, *options)
    try:
        yield daemon
    finally:
        daemon.process.kill()
        daemon.process.wait()


OWN = ("--policy-file", FILE, "--policy-memory", "0.5", "--decide-within", "2s")


def test_every_way_to_fail_ends_in_a_named_fallback_and_the_journal_replays(tmp_path: Path) -> None:
    with serving(tmp_path, "--policy", "las", *OWN) as daemon:
        client = daemon.client
        assert "failing" in client.get("/policy")["available"]
        job = client.post("/jobs", JOB)["id"]
        wait_for(lambda: client.get(f"/jobs/{job}")["phase"] == "running", "the job to run")
        for way in (*WAYS, "grants-too-much"):
            client.put("/policy", {"name": "failing", "parameters": {"way": way}})
            wait_for(lambda: daemon.status()["fell_back"] is not None, f"a fallback from a policy that {way}")
            status = daemon.status()
            assert status["fell_back"].startswith("policy failing cannot decide (")
            assert status["fell_back"].endswith("); las decides from now on")
            assert status["policy"] == "las"
            wait_for(lambda: daemon.health()["policy_failed"], "the health to show it")
            client.put("/policy", {"name": "las"})
            wait_for(lambda: daemon.status()["fell_back"] is None, "the operator's choice")
        assert status["scheduler"]["restarts"] == 0
        client.put("/policy", {"name": "failing"})
        another = client.post("/jobs", JOB)["id"]
        wait_for(lambda: client.get(f"/jobs/{another}")["phase"] == "running", "a decision by one that does not fail")
        journal = tmp_path / "journal.jsonl"
        journal.write_text("".join(client.lines("/journal")))
        daemon.end()

    events = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert sum("instead_of" in event for event in events) == len(WAYS) + 1
    from failing_policy import POLICY

    register(POLICY)
    replayed = replay_journal(journal)
    assert replayed.decisions == replayed.same > 0


def test_a_policy_that_failed_prevents_no_start_and_the_failure_is_still_shown(tmp_path: Path) -> None:
    with serving(tmp_path, "--policy", "fifo", *OWN) as daemon:
        daemon.client.post("/jobs", JOB)
        daemon.client.put("/policy", {"name": "failing", "parameters": {"way": "segfaults"}})
        wait_for(lambda: daemon.status()["fell_back"] is not None, "a fallback")
        daemon.end(signal.SIGINT)
        daemon.start(*OWN)
        assert daemon.status()["policy"] == "fifo"
        assert "SIGSEGV" in daemon.status()["fell_back"]
        daemon.client.put("/policy", {"name": "failing"})
        wait_for(lambda: daemon.status()["policy"] == "failing", "the operator's choice")
        daemon.end()
        daemon.start("--policy", "las")  # without the file
        wait_for(lambda: daemon.status()["policy"] == "las", "the policy of the command line")
        assert daemon.status()["fell_back"] is None
        daemon.end()


def test_values_and_files_that_cannot_work_are_refused_at_the_door(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import ctypes\nctypes.string_at(0)\n")
    with pytest.raises(AssertionError, match="the process that loaded it ended with code -11"):
        Daemon(tmp_path, "--policy-file", str(broken))
    with serving(tmp_path, *OWN) as daemon:
        for choice, why in (
            ({"name": "fft-ranked", "parameters": {"settle": 0.5}}, "settle is 0.5; wanted a whole number"),
            ({"name": "hops-late", "parameters": {"served": 1e308}}, r"served is 1e\+308; wanted a number"),
            ({"name": "failing", "parameters": {"way": "well"}}, "way is 'well'; wanted not or"),
        ):
            with pytest.raises(InputError, match=why):
                daemon.client.put("/policy", choice)
        daemon.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_it_ends_in_time_while_a_policy_hangs_in_c_and_a_client_holds_a_stream(tmp_path: Path, number: int) -> None:
    with serving(tmp_path, "--policy-file", FILE, "--decide-within", "1h") as daemon:
        client = daemon.client
        job = client.post("/jobs", JOB)["id"]
        reader = threading.Thread(target=_follow, args=(client, job), daemon=True)
        reader.start()
        wait_for(lambda: client.get(f"/jobs/{job}")["phase"] == "running", "the job to run")
        client.put("/policy", {"name": "failing", "parameters": {"way": "loops-in-c"}})
        wait_for(lambda: any(_cpu_ticks(pid) > 100 for pid in daemon.deciders()), "the policy to loop")
        daemon.end(number)
        reader.join(PATIENCE_S)


def _follow(client: Client, job: str) -> None:
    with suppress(UnreachableError, RefusedError):
        for _ in client.lines(f"/jobs/{job}/logs", follow="true"):
            pass


def _cpu_ticks(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
    return 0


def test_an_overdue_decision_is_shown_and_a_scheduler_that_is_stuck_is_killed(tmp_path: Path) -> None:
    """A stopped process does as little as one whose disk does not answer."""
    with serving(tmp_path, "--policy", "sia", "--decide-within", "5s") as daemon:  # which decides every round
        daemon.client.post("/jobs", JOB)
        wait_for(lambda: daemon.health()["decision_age_s"] is not None, "a decision")
        os.kill(daemon.scheduler(), signal.SIGSTOP)
        wait_for(lambda: _degraded(daemon), "a decision to be overdue")
        daemon.end()


def _degraded(daemon: Daemon) -> bool:
    try:
        return bool(daemon.client.get("/health")["decision_overdue"])
    except RefusedError:  # 503
        return True


def test_it_ends_in_time_although_both_databases_are_blocked(tmp_path: Path) -> None:
    with serving(tmp_path) as daemon:
        daemon.client.post("/jobs", JOB)
        with (
            closing(sqlite3.connect(daemon.state / "requests.db", isolation_level=None)) as requests,
            closing(sqlite3.connect(daemon.state / "events.db", isolation_level=None)) as events,
        ):
            requests.execute("BEGIN IMMEDIATE")
            events.execute("BEGIN IMMEDIATE")
            writer = threading.Thread(target=_submit, args=(daemon.client,), daemon=True)
            writer.start()
            wait_for(lambda: writer.is_alive(), "a submit that waits")
            daemon.end()
            writer.join(PATIENCE_S)


def _submit(client: Client) -> None:
    with suppress(UnreachableError, RefusedError):
        client.post("/jobs", JOB)
