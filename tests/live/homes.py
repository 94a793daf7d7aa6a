"""A user with a home directory and a service of their own in it, for an engine that needs a cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from waiting import PATIENCE_S, wait_for

SOURCE = Path(__file__).resolve().parents[2] / "src"
_FAIRLEAD = (sys.executable, "-m", "fairlead.cli.main")
C = TypeVar("C")


@dataclass(frozen=True)
class Site(Generic[C]):
    """A cluster, and a user with a service on it. `engine` are the options that choose its engine."""

    cluster: C
    home: Path
    engine: tuple[str, ...]
    path: str
    more: Mapping[str, str] = field(default_factory=dict)  # of the environment

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": self.path, "HOME": str(self.home), "PYTHONPATH": str(SOURCE), **self.more}

    def serve(self, policy: str = "fifo", *more: str, round_s: float = 1.0) -> subprocess.Popen[bytes]:
        words = ["serve", *self.engine, "--policy", policy, "--port", "0", "--min-run", "0", *more]
        words += ["--round", f"{round_s:g}s"]
        with (self.home / "log").open("a") as log:
            daemon = subprocess.Popen(
                [*_FAIRLEAD, *words, "--state", str(self.home / "state")],
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.home,
            )
        wait_for(lambda: daemon.poll() is not None or self._answers(), "the service to start")
        assert daemon.poll() is None, (self.home / "log").read_text()
        return daemon

    def _answers(self) -> bool:
        return not subprocess.run(
            [*_FAIRLEAD, "status"], env=self.environment, capture_output=True, check=False
        ).returncode

    def run(self, *words: str, text: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [*_FAIRLEAD, *words],
            input=text,
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.home,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def read(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))

    def submit(self, run: str, **fields: Any) -> str:
        env = {"PYTHONPATH": str(SOURCE)}
        document = {"name": "job", "run": run, "workdir": str(self.home), "env": env, **fields}
        return self.run("submit", "-", text=json.dumps(document)).strip()

    def phase(self, job: str) -> str:
        return str(self.read("status", job)["phase"])

    def free(self, node: str) -> int:
        return int(next(one["free"] for one in self.read("nodes")["nodes"] if one["name"] == node))

    def stop(self, daemon: subprocess.Popen[bytes]) -> None:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(PATIENCE_S)
