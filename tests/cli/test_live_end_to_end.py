"""The live commands against a real service with real processes, as a user would type them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from waiting import PATIENCE_S, until_told, wait_for

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class User:
    """A user with a home directory of their own, in which commands run."""

    home: Path

    def run(self, *words: str, text: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "fairlead.cli.main", *words],
            input=text,
            capture_output=True,
            text=True,
            env=environment(self.home),
            cwd=self.home,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))

    def submit(self, run: str, **fields: Any) -> str:
        return self.run("submit", "-", text=json.dumps({"name": "job", "run": run, **fields})).strip()

    def until(self, job: str, phase: str) -> dict[str, Any]:
        wait_for(lambda: self.json("status", job)["phase"] == phase, f"job {job} to be {phase}")
        document: dict[str, Any] = self.json("status", job)
        return document

    def endless(self) -> str:
        """A command that runs until it is stopped, or until all tests have ended."""
        return until_told(self.home / "over")


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home), "MARK_OF_THE_DAEMON": "secret-of-the-daemon"}


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    home = tmp_path_factory.mktemp("home")
    words = ["serve", "--cluster", "v100:4,k80:2", "--policy", "fifo", "--port", "0", "--round", "1s", "--min-run", "0"]
    command = [sys.executable, "-m", "fairlead.cli.main", *words, "--restart-cost", "0", "--state", str(home / "state")]
    with (home / "log").open("w") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, env=environment(home), cwd=home)
    try:
        saved = home / ".config" / "fairlead" / "credentials.json"
        wait_for(lambda: saved.is_file() or daemon.poll() is not None, "the service to start")
        assert daemon.poll() is None, (home / "log").read_text()
        yield User(home)
    finally:
        (home / "over").touch()
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            raise


def test_a_job_runs_and_its_exit_code_is_mirrored(user: User) -> None:
    good, bad = user.submit("echo hello from $CUDA_VISIBLE_DEVICES"), user.submit("exit 7")

    assert user.run("wait", good).strip() == "finished"
    assert user.run("wait", bad, code=7).strip() == "failed"
    assert user.run("logs", good).startswith("hello from ")
    assert user.json("status", bad)["exit_code"] == 7


def test_logs_are_followed_until_the_end(user: User) -> None:
    job = user.submit("for i in 1 2 3; do echo line $i; sleep 0.2; done")

    assert user.run("logs", "-f", job).split() == ["line", "1", "line", "2", "line", "3"]


def test_a_job_sees_nothing_of_the_daemons_environment(user: User) -> None:
    job = user.submit("env")
    user.run("wait", job)

    shown = user.run("logs", job)
    assert "secret-of-the-daemon" not in shown
    assert "TOKEN" not in shown


def test_a_job_is_held_released_and_cancelled(user: User) -> None:
    job = user.submit(user.endless(), grace="1s")
    user.until(job, "running")

    user.run("hold", job)
    user.until(job, "held")
    user.run("release", job)
    user.until(job, "running")
    user.run("cancel", job)
    user.until(job, "cancelled")
    assert user.run("wait", job, code=1).strip() == "cancelled"
    assert "already" in user.run("hold", job, code=1)


def test_a_drained_node_is_left_and_used_again(user: User) -> None:
    job = user.submit(user.endless(), resources={"accelerators": "K80:1"}, grace="1s")
    user.until(job, "running")

    user.run("nodes", "drain", "k80-1")
    user.until(job, "waiting")
    assert {node["name"]: node["up"] for node in user.json("nodes")["nodes"]} == {"v100-1": True, "k80-1": False}
    user.run("nodes", "resume", "k80-1")
    user.until(job, "running")
    user.run("cancel", job)


def test_a_node_is_added_used_and_removed(user: User) -> None:
    user.run("nodes", "add", "extra", "--gpu", "p100", "--gpus", "2")
    job = user.submit(user.endless(), resources={"accelerators": "P100:2"}, grace="1s")
    user.until(job, "running")

    assert "nodes drain extra" in user.run("nodes", "remove", "extra", code=1)
    user.run("nodes", "remove", "extra", "--now")
    user.until(job, "waiting")
    wait_for(lambda: "extra" not in [node["name"] for node in user.json("nodes")["nodes"]], "the node to leave")
    assert user.json("status")["gpus"]["p100"]["total"] == 0
    user.run("cancel", job)


def test_weights_and_quotas_are_set_and_shown(user: User) -> None:
    quota = {"type": "v100", "nominal": 2, "borrowing_limit": 1, "lending_limit": 1}

    def shown() -> tuple[float | None, list[Any] | None]:
        row = {tenant["name"]: tenant for tenant in user.json("tenants")["tenants"]}.get("vision", {})
        return row.get("weight"), row.get("quotas")

    def shown_after(*words: str, want: tuple[float, list[Any]]) -> None:
        user.run("tenants", "set", "vision", *words)
        wait_for(lambda: shown() == want, f"{want} after {words}")

    shown_after("--weight", "3", "--quota", "v100=2+1-1", want=(3, [quota]))
    shown_after("--weight", "5", want=(5, [quota]))
    shown_after("--quota", "v100=2+1", want=(5, [{**quota, "lending_limit": None}]))
    shown_after("--quota", "none", want=(5, []))
    assert "vision" in user.run("tenants")


def test_the_policy_is_switched_while_it_runs(user: User) -> None:
    user.run("policy", "set", "oef-coop")

    wait_for(lambda: user.json("policy")["name"] == "oef-coop", "the policy to be switched")
    job = user.submit("true")
    assert user.run("wait", job).strip() == "finished"
    assert 'policy "nonsense" is not known' in user.run("policy", "set", "nonsense", code=2)


def test_a_member_sees_only_the_jobs_of_its_tenant(user: User) -> None:
    secret = user.run("token", "create", "for-vision", "--role", "member", "--tenant", "vision").strip()
    foreign = user.submit("true", tenant="speech")
    member = User(user.home / "member")
    member.home.mkdir()
    url = json.loads((user.home / ".config" / "fairlead" / "credentials.json").read_text())["url"]
    member.run("token", "use", "--url", url, text=secret)

    mine = member.submit("true")

    assert member.json("status", mine)["tenant"] == "vision"
    member.run("status", foreign, code=3)
    member.run("cancel", foreign, code=3)
    member.run("tenants", "set", "vision", "--weight", "9", code=4)
    assert {job["tenant"] for job in member.json("queue", "--all")["jobs"]} == {"vision"}
    assert secret not in user.run("token", "list")


def test_a_job_that_can_never_run_is_refused_with_code_5(user: User) -> None:
    text = json.dumps({"name": "wide", "run": "true", "resources": {"accelerators": "V100:64"}})

    assert "64 GPUs" in user.run("submit", "-", text=text, code=5)


def test_a_running_job_is_shown_by_every_view(user: User) -> None:
    job = user.submit(user.endless(), grace="1s")
    user.until(job, "running")

    assert job in user.run("queue")
    assert "policy" in user.run("top", "--once")
    assert {tenant["tenant"] for tenant in user.json("share")["shares"]} >= {"default"}
    assert user.json("doctor")[-1]["ok"] is True
    assert user.run("status")
    user.run("cancel", job)


def test_the_journal_of_the_service_replays_and_can_be_audited(user: User) -> None:
    for job in [user.submit("sleep 0.3", tenant=tenant) for tenant in ("vision", "speech")]:
        user.run("wait", job)

    user.run("journal", "--out", "live.jsonl")
    assert user.run("journal").startswith('{"fairlead":"journal/')

    replayed = user.json("replay", "live.jsonl")
    assert replayed["decisions"] > 3
    assert replayed["same"] == replayed["decisions"]
    assert "sharing" in user.run("audit", "live.jsonl")
