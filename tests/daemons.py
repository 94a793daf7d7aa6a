"""`fairlead serve` in processes of its own, and careful ways to talk to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairlead.service.client import Client, UnreachableError
from leftovers import end_leases
from waiting import PATIENCE_S, wait_for

SERVE = """
import sys
from pathlib import Path
from fairlead.model.cluster import parse_short_form
from fairlead.service.process.daemon import ServiceOptions, serve
from fairlead.service.process.scheduler import SchedulerOptions
from fairlead.service.process.supervisor import Patience
from fairlead.traces.profiles import load_default_profile
state = Path(sys.argv[1])
policy = None if state.exists() else "fifo"  # a policy that is named replaces the one of before
serve(ServiceOptions(parse_short_form("v100:6,k80:4"), load_default_profile(), state, port=int(sys.argv[2]), policy=policy,
              standby="--standby" in sys.argv, plan=SchedulerOptions(round_s=1.0, min_run_s=0.0), patience=Patience(deaths=10**6, longest_pause_s=0.05)))
"""


@contextmanager
def serving_at_home(home: Path, environment: dict[str, str], *words: str) -> Iterator[Client]:
    """`fairlead serve` with these options by a user whose home directory this is, until the end of the block.

    It keeps its state and its log there.
    """

    def client() -> Client:
        saved = json.loads((home / ".config/fairlead/credentials.json").read_text())
        return Client(saved["url"], saved["token"])

    def answers() -> bool:
        try:
            return bool(client().get("/status"))
        except (OSError, UnreachableError):
            return False

    command = [
        sys.executable,
        "-m",
        "fairlead.cli.main",
        "serve",
        "--port",
        "0",
        "--state",
        str(home / "state"),
        *words,
    ]
    with (home / "log").open("a") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=home)
    try:
        wait_for(lambda: answers() or daemon.poll() is not None, "the service to start")
        assert daemon.poll() is None, (home / "log").read_text()
        yield client()
    finally:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            raise


class Service:
    """`fairlead serve` in processes of its own; its two pids stand in the lock files."""

    def __init__(self, folder: Path, descriptors: int | None = None) -> None:
        self.folder, self.state = folder, folder / "state"
        self.descriptors = descriptors  # the most that a process of it may open
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        log = (self.folder / "serve.log").open("ab")
        environment = {
            **os.environ,
            "FAIRLEAD_CREDENTIALS": str(self.folder / "credentials.json"),
            "SECRET_OF_HOST": "hunter2",
        }
        command = [sys.executable, "-c", SERVE, str(self.state), str(self.port), *options]
        if self.descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {self.descriptors} && exec "$@"', "sh", *command]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        log.close()

    def client(self) -> Client:
        saved = json.loads((self.folder / "credentials.json").read_text())
        return Client(f"http://127.0.0.1:{self.port}", saved["token"])

    def scheduler(self) -> int | None:
        with suppress(OSError, ValueError):
            pid = int((self.state / "scheduler.lock").read_text())
            if b"fairlead.service.process.scheduler" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return None

    def kill(self, who: str) -> None:
        assert self.process is not None
        victims = []
        if who in ("scheduler", "both"):
            wait_for(lambda: self.scheduler() is not None, "a scheduler to kill")
            victims.append(self.scheduler())
        if who in ("service", "both"):
            victims.append(self.process.pid)
        for pid in victims:
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if who != "scheduler":
            self.process.wait()
            self.start()

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@contextmanager
def running(folder: Path, descriptors: int | None = None) -> Iterator[Service]:
    service = Service(folder, descriptors)
    service.start()
    try:
        wait_for(lambda: (folder / "credentials.json").exists() or service.ended(), "the first start")
        assert not service.ended(), (folder / "serve.log").read_text()
        yield service
    finally:
        try:
            service.stop()
        finally:
            end_leases(service.state)


def insist(do: Callable[[], Any]) -> Any:
    """Asks again until somebody answers, as a careful client does."""
    answers: list[Any] = []

    def answered() -> bool:
        with suppress(UnreachableError):
            answers.append(do())
        return bool(answers)

    wait_for(answered, "an answer of the service")
    return answers[0]
