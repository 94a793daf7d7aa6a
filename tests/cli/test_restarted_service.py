"""A service that is started again with other options says what changes, and its journal replays exactly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from daemons import serving_at_home
from fairlead.service.client import Client
from fairlead.studies.journals.replaying import Replayed, replay_journal
from fairlead.studies.runs.origin import journal_origin
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow
OPTIONS = ("--cluster", "v100:2,k80:2", "--engine", "pretend", "--restart-cost", "0")


class Home:
    """A user with a home directory, whose service keeps its state there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        self.environment = {**kept, "HOME": str(path)}

    def serving(self, *options: str) -> AbstractContextManager[Client]:
        return serving_at_home(self.path, self.environment, *OPTIONS, *options)

    def log(self) -> str:
        return (self.path / "log").read_text()

    def run(self, *words: str, code: int = 0) -> str:
        done = self._done(words, code)
        return done.stdout + done.stderr

    def ask(self, *words: str) -> Any:
        """The answer alone: a slow command reports its progress on stderr."""
        return json.loads(self._done((*words, "-o", "json"), 0).stdout)

    def _done(self, words: Sequence[str], code: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fairlead.cli.main", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def run_three(client: Client) -> None:
    jobs = [client.post("/jobs", {"name": "short", "run": "sleep 2", "tenant": tenant})["id"] for tenant in "abc"]
    wait_for(lambda: all(client.get(f"/jobs/{job}")["phase"] == "finished" for job in jobs), "the jobs to end")


def test_settings_of_a_restart_are_in_the_journal_and_it_replays_exactly(home: Home) -> None:
    with home.serving("--round", "1s", "--min-run", "0", "--policy", "las") as client:
        run_three(client)
    with home.serving("--round", "2s", "--min-run", "1s") as client:
        run_three(client)
        journal = home.path / "whole.jsonl"
        journal.write_text("".join(client.lines("/journal")))

    settings: list[dict[str, Any]] = [
        record["settings"]
        for record in map(json.loads, journal.read_text().splitlines())
        if record.get("event") == "settings_set"
    ]
    assert [(one["round_s"], one["min_run_s"]) for one in settings] == [(2.0, 1.0)]
    replayed = replay_journal(journal)
    assert replayed == Replayed(replayed.decisions, replayed.decisions, None)
    assert replayed.decisions >= 6
    assert journal_origin(journal).settings.round_s == 2.0


def test_a_policy_that_another_one_replaces_at_a_start_is_named(home: Home) -> None:
    with home.serving("--policy", "fifo") as client:
        client.put("/policy", {"name": "las"})
    with home.serving("--policy", "fifo") as client:
        wait_for(lambda: client.get("/policy")["name"] == "fifo", "the policy of the command line")

    assert "fairlead: --policy replaces las by fifo" in home.log()


def test_a_drained_node_is_shown_as_drained_and_a_near_name_is_proposed(home: Home) -> None:
    with home.serving() as client:
        home.run("nodes", "drain", "k80-1")
        wait_for(lambda: client.get("/status")["nodes_down"] == ["k80-1"], "the node to be drained")

        assert "drained" in home.run("nodes")
        assert {node["name"]: node["drained"] for node in client.get("/nodes")["nodes"]} == {
            "v100-1": False,
            "k80-1": True,
        }
        for verb in ("drain", "resume", "remove"):
            assert 'did you mean "k80-1"?' in home.run("nodes", verb, "k80-2", code=3)
        assert 'type "v999" is not in the cluster' in home.run("tenants", "set", "a", "--quota", "v999=3", code=2)
        assert set(client.get("/status")["scheduler"]) >= {"ready", "start_s"}
        assert "jobs" not in client.get("/status")["scheduler"]


SHORTEST = "name: shortest\ntenant: a\nmodel: resnet50\nresources: {accelerators: V100:2}\nsteps: 100\nrun: sleep 1\n"


def test_a_service_keeps_its_limit_on_pre_emption_and_what_if_raises_it(home: Home) -> None:
    """The shortest job goes first: one pre-emption is possible in an hour, and the next job waits for that hour."""

    def submit(client: Client, steps: float) -> str:
        job = {"name": "long", "run": "sleep 3600", "tenant": "a", "model": "resnet50", "steps": int(steps)}
        id_: str = client.post("/jobs", {**job, "resources": {"accelerators": "V100:2"}})["id"]
        return id_

    def phase(client: Client, job: str) -> str:
        found: str = client.get(f"/jobs/{job}")["phase"]
        return found

    world = ("--cluster", "v100:2", "--engine", "pretend", "--restart-cost", "0.1s", "--round", "1s", "--min-run", "0")
    rules = ("--policy", "srtf", "--preemption-limit", "0.1gpu-s/h")
    with serving_at_home(home.path, home.environment, *world, *rules) as client:
        long = submit(client, 3e9)
        wait_for(lambda: phase(client, long) == "running", "the long job to run")
        middle = submit(client, 2e9)
        wait_for(lambda: phase(client, middle) == "running", "the first pre-emption")
        short = submit(client, 1e9)
        wait_for(lambda: (client.get(f"/jobs/{short}")["reason"] or "").startswith("PreemptionLimit"), "the limit")

        (home.path / "job.yaml").write_text(SHORTEST)
        kept = f"submit={home.path / 'job.yaml'} load=0"
        scenarios = ("--scenario", f"{kept} name=kept", "--scenario", f"{kept} preemption-limit=1gpu-h/h name=raised")
        answer = home.ask("what-if", *scenarios, "--seeds", "1", "--horizon", "5m")

    starts_s = {one["name"]: one.get("submitted_start_in_s", {}).get("shortest") for one in answer["scenarios"]}
    assert starts_s["kept"] is None
    assert starts_s["raised"] <= 10.0
