"""A service that only watches a real Slurm: what it records, what it advises, and that it changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from daemons import serving_at_home
from fairlead.engines.slurm.watch_file import FILE, WatchRecord, read_record
from fairlead.engines.slurm.watched import WatchedJob
from fairlead.model.errors import NotFoundError
from fairlead.service.client import Client, RefusedError
from slurm_cluster import SlurmCluster, TestNode, missing
from waiting import PATIENCE_S, until_told, wait_for

pytestmark = pytest.mark.slow
NODES = [TestNode("fast", "v100", 4), TestNode("slow", "k80", 2)]
COMMANDS = ("squeue", "sinfo", "scontrol", "sshare", "sacctmgr", "sbatch", "scancel", "srun", "salloc", "sacct")


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    cluster = SlurmCluster(NODES, {"MinJobAge": "2"})
    yield cluster
    cluster.stop()


class Watcher:
    """A home directory with a service that watches the cluster. Every command of Slurm that it runs is written down."""

    def __init__(self, path: Path, slurm: SlurmCluster) -> None:
        self.path, self.slurm = path, slurm
        self.over = path / "over"
        programs = path / "bin"
        programs.mkdir()
        for name in COMMANDS:
            program = programs / name
            real = shutil.which(name)
            program.write_text(f'#!/bin/sh\necho "{name} $*" >> {path}/commands\nexec {real} "$@"\n')
            program.chmod(0o755)
        kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        self.environment = {
            **kept,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(path),
            "SLURM_CONF": slurm.environment["SLURM_CONF"],
        }

    def serving(self, *options: str) -> AbstractContextManager[Client]:
        words = ("--engine", "slurm", "--shadow", "--look", "0.2s", "--round", "1s")
        return serving_at_home(self.path, self.environment, *words, *options)

    def run(self, *words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "fairlead.cli.main", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def submit(self, *options: str, run: str | None = None) -> str:
        script = run or until_told(self.over)
        return self.slurm.run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}").strip()

    def record(self) -> WatchRecord:
        return read_record(self.path / "state" / FILE)

    def row(self, job: str) -> WatchedJob:
        return self.record().jobs[job]


@pytest.fixture
def watcher(tmp_path: Path, slurm: SlurmCluster) -> Iterator[Watcher]:
    yield Watcher(tmp_path, slurm)
    slurm.clear()


def phase(client: Client, job: str) -> str:
    try:
        return str(client.get(f"/jobs/{job}")["phase"])
    except NotFoundError:
        return "unknown"


def notes(client: Client) -> str:
    return "\n".join(client.get("/status")["scheduler"]["watching"])


def jobs_of(slurm: SlurmCluster) -> set[str]:
    return set(slurm.run("squeue", "-h", "-a", "-r", "-o", "%i %T %N").splitlines())


def test_a_watching_service_shows_what_slurm_does_and_changes_nothing(watcher: Watcher) -> None:
    slurm = watcher.slurm
    before = watcher.submit("--gres=gpu:k80:2", "--job-name=old")
    with watcher.serving() as client:
        gang = watcher.submit("--gres=gpu:1", "--nodes=2", "--comment=fairlead: model=resnet50 steps=1000")
        wide = watcher.submit("--gpus=4", "--job-name=wide")
        held = watcher.submit("--gpus=1", "--hold")
        array = watcher.submit("--array=0-1", "--gres=gpu:v100:1")
        foreign = watcher.submit()
        wait_for(lambda: phase(client, before) == "running", "the job that ran before")
        wait_for(lambda: phase(client, wide) == "running", "the wide job")
        wait_for(lambda: phase(client, held) == "held", "the held job")
        wait_for(lambda: phase(client, f"{array}_1") == "waiting", "the task of the array")
        assert phase(client, foreign) == "unknown"
        assert client.get(f"/jobs/{wide}")["held"]["nodes"] == {"fast": 4}
        wait_for(lambda: ": " in str(client.get(f"/jobs/{gang}")["reason"]), "advice about the gang")
        answer = client.get(f"/jobs/{gang}/explain")
        assert (answer["expected_s"], answer["unchecked"].split(",")[0]) == (None, "Slurm decides here")

        wait_for(lambda: any(line.startswith(f"{foreign} RUNNING") for line in jobs_of(slurm)), "the foreign job")

        real = jobs_of(slurm)
        for verb in ("status", "queue", "nodes"):
            assert "only watches" in watcher.run(verb)
        assert "only watches Slurm" in watcher.run("cancel", wide, code=1)
        for path in ("/nodes/fast/drain", f"/jobs/{held}/release"):
            with pytest.raises(RefusedError, match="only watches Slurm"):
                client.post(path)
        assert jobs_of(slurm) == real

        slurm.run("scontrol", "release", held)
        slurm.run("scancel", wide)
        watcher.over.touch()
        wait_for(lambda: phase(client, before) == "finished", "the first job to end")
        wait_for(lambda: phase(client, wide) == "cancelled", "the wide job to end")
        wait_for(lambda: phase(client, gang) == "finished", "the gang to end")
        wait_for(lambda: phase(client, held) == "finished", "the held job to end")
        assert client.get("/decisions")["decisions"]
        assert client.get("/audit")["decided_by"] == "Slurm"
        wait_for(lambda: all(count > 0 for count in measured(client).values()), "measurements in the metrics")

    rows = watcher.record()
    assert {rows.jobs[job].ended for job in (before, gang, held, f"{array}_0")} == {"COMPLETED"}
    assert rows.jobs[wide].ended == "CANCELLED"
    assert rows.jobs[gang].runs[0].hosts == ("fast", "slow")
    assert (rows.jobs[gang].spec.model, rows.jobs[gang].model_from) == ("resnet50", "comment")
    assert rows.aside == {foreign: "it requests no GPUs"}
    assert {words for words in commands(watcher) if not is_read_only(words)} == set()
    answer = watcher.run("shadow", "report", "--state", str(watcher.path / "state"), "--policies", "fifo", "-o", "json")
    report = json.loads(answer)
    starts = {row["job"]: row["starts"]["as it was"] for row in report["jobs"]}
    assert starts[wide] == rows.jobs[wide].runs[0].start_s
    assert not {gang, foreign} & starts.keys(), "a gang over two types and a job without GPUs"


def measured(client: Client) -> dict[str, float]:
    """How often a watching service has decided, committed and looked at Slurm, by its metrics."""
    text = httpx.get(f"{client.url}/metrics", headers={"Authorization": f"Bearer {client.token}"}).text
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    names = (
        "fairlead_decision_seconds_count",
        'fairlead_decisions_total{cause="slurm"}',
        'fairlead_decisions_total{cause="round"}',
        'fairlead_commit_seconds_count{database="events"}',
        'fairlead_engine_call_seconds_count{call="look"}',
    )
    return {name: float(samples.get(name, 0)) for name in names}


def commands(watcher: Watcher) -> list[str]:
    return (watcher.path / "commands").read_text().splitlines()


def is_read_only(words: str) -> bool:
    program, *rest = words.split()
    reads: dict[str, Any] = {
        "squeue": True,
        "sinfo": True,
        "sshare": True,
        "scontrol": rest == ["show", "config"],
        "sacctmgr": "show" in rest and not {"add", "modify", "delete", "-i"} & set(rest),
    }
    return bool(reads.get(program, False))


def test_a_watching_service_survives_restarts_requeues_drains_and_a_controller_that_is_away(watcher: Watcher) -> None:
    slurm = watcher.slurm
    with watcher.serving() as client:
        job = watcher.submit("--gres=gpu:v100:1", "--requeue")
        quick = watcher.submit("--gres=gpu:1", run="true")
        wait_for(lambda: phase(client, job) == "running", "the job to run")
        wait_for(lambda: quick in watcher.record().jobs and watcher.row(quick).ended == "COMPLETED", "the quick job")
        slurm.run("scontrol", "update", "nodename=slow", "state=drain", "reason=test")
        wait_for(lambda: {node["name"]: node["free"] for node in client.get("/nodes")["nodes"]}["slow"] == 0, "a drain")
        slurm.kill("slurmctld", signal.SIGTERM)  # it saves its state, so that the job lives on
        wait_for(lambda: "has not answered" in notes(client), "the silence to be noticed")
        slurm.start_controller()
        wait_for(lambda: "has not answered" not in notes(client), "the controller to be back")
        wait_for(lambda: phase(client, job) == "running", "the job under the new controller")
        before = watcher.row(job).runs
        slurm.run("scontrol", "requeue", job)
        wait_for(lambda: len(watcher.row(job).runs) > len(before), "one more run")
    lines = (watcher.path / "state" / FILE).read_text().count("\n")
    runs = watcher.row(job).runs
    assert runs[-2].ended == "REQUEUED"
    assert (runs[-2].end_s or 0.0) <= runs[-1].start_s

    gone = watcher.submit("--gres=gpu:1", run="true")
    with watcher.serving() as client:
        wait_for(lambda: phase(client, job) == "running", "the job after a restart")
        assert watcher.row(job).runs == runs
        watcher.over.touch()
        wait_for(lambda: watcher.row(job).ended == "COMPLETED", "the job to end")
        wait_for(lambda: phase(client, job) == "finished", "the job to end here too")
    text = (watcher.path / "state" / FILE).read_text()
    assert text.count("\n") - lines <= 6, "a restart repeats no fact"
    assert gone not in watcher.record().jobs or watcher.row(gone).ended

    words = ("serve", "--engine", "slurm", "--state", str(watcher.path / "state"), "--port", "0")
    assert "belongs to a service with --shadow" in watcher.run(*words, code=2)
