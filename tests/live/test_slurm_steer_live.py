"""Steering on a real Slurm with accounting: users of two accounts submit with `sbatch`, and never see Fairlead."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster import STEERED, SlurmCluster, missing, steered_cluster
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).resolve().parents[2] / "src"
# Counts to its argument, or on until `over` exists; remembers each number, and leaves with 85 when it is asked to.
COUNTING = """
count=$HOME/$SLURM_JOB_ID
n=$(cat $count 2>/dev/null || echo 0)
trap 'exit 85' USR1
echo $SLURMD_NODENAME >> $count.nodes
while [ $n -lt {steps} ] || [ ! -e {over} ]; do sleep 0.05 & wait $!; n=$((n + 1)); echo $n > $count; done
"""


@dataclass
class Site:
    """A cluster whose administrator steers one partition with a service."""

    slurm: SlurmCluster
    home: Path
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        kept = {"PATH": self.slurm.environment["PATH"], "SLURM_CONF": self.slurm.environment["SLURM_CONF"]}
        path = f"{self.home / 'clock'}:{SOURCE}"  # a test may lay out a clock that is wrong
        return {**kept, "HOME": str(self.home), "PYTHONPATH": path}

    def serve(self, *more: str) -> None:
        options = ["--engine", "slurm", "--steer", STEERED, "--port", "0", "--min-run", "0", *more]
        options += ["--state", str(self.home / "state"), *([] if "--round" in more else ["--round", "2s"])]
        with (self.home / "log").open("a") as log:
            command = [sys.executable, "-m", "fairlead.cli.main", "serve", *options]
            daemon = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, cwd=self.home)
        self.daemons.append(daemon)
        try:
            wait_for(lambda: daemon.poll() is not None or self.run("status")[0] == 0, "the service to start")
            assert daemon.poll() is None, (self.home / "log").read_text()
        except BaseException:
            self.stop()
            raise

    def run(self, *words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "fairlead.cli.main", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment, timeout=PATIENCE_S, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Our jobs by Slurm's id."""
        code, text = self.run("queue", "--all", "-o", "json")
        assert code == 0, text
        return {job["name"].split()[0]: job for job in json.loads(text)["jobs"]}

    def submit(self, user: str, script: str, *options: str) -> str:
        return self.slurm.submit(user, script, f"--partition={STEERED}", "--output=%x.out", *options)

    def counting(self, user: str, steps: int, *options: str, over: str = "/") -> str:
        script = COUNTING.format(steps=steps, over=over)
        return self.submit(user, script, *(options or ("--gres=gpu:1",)))

    def counted(self, user: str, job: str) -> int:
        with suppress(OSError, ValueError):
            return int((self.slurm.home(user) / job).read_text())
        return 0

    def accounted(self, job: str) -> tuple[str, str]:
        """State and exit code of a job in Slurm's accounting."""
        row = self.slurm.run("sacct", "-n", "-X", "-P", "-j", job, "-o", "State,ExitCode").strip().split("\n")[-1]
        state, _, code = row.partition("|")
        return state.split()[0] if state else "", code

    def restarts(self, job: str) -> int:
        text = self.slurm.run("squeue", "-h", "-t", "all", "-j", job, "-O", "RestartCnt", check=False).strip()
        return int(text or 0)

    def stop(self, with_signal: int = signal.SIGTERM) -> None:
        daemon = self.daemons.pop()
        daemon.send_signal(with_signal)
        daemon.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    reason = missing(accounting=True)
    if reason is not None:
        pytest.skip(reason)
    made = Site(steered_cluster(), tmp_path_factory.mktemp("home"))
    made.serve("--policy", "oef-coop", "--look", "0.5s")
    yield made
    while made.daemons:
        made.stop()
    made.slurm.clear()


def test_jobs_of_all_kinds_end_once_with_their_own_exit_codes(site: Site) -> None:
    plain = [site.counting(user, 20) for user in ("games", "news")]
    fails = site.submit("news", "exit 3", "--gres=gpu:1")
    array = site.submit("games", "exit 0", "--gres=gpu:1", "--array=1-3")
    wide = site.submit(
        "games", "srun hostname; srun sh -c 'echo on $SLURMD_NODENAME'", "--nodes=2", "--gres=gpu:2", "-J", "wide"
    )
    typed = site.submit("news", "echo $SLURMD_NODENAME", "--gres=gpu:k80:1", "-J", "typed")
    without = site.submit("games", "exit 0")
    expected = dict.fromkeys((*plain, *(f"{array}_{n}" for n in (1, 2, 3)), wide, typed, without), ("COMPLETED", "0:0"))
    expected[fails] = ("FAILED", "3:0")

    wait_for(
        lambda: {job: site.accounted(job) for job in expected} == expected, "all jobs to end in Slurm's accounting"
    )

    assert [site.counted(user, job) for user, job in zip(("games", "news"), plain, strict=True)] == [20, 20]
    on = (site.slurm.home("games") / "wide.out").read_text()
    assert "on v100-1" in on
    assert "on v100-2" in on
    assert (site.slurm.home("news") / "typed.out").read_text().strip() == "k80-1"
    wait_for(lambda: all(job["phase"] in ("finished", "failed") for job in site.jobs().values()), "our log to know it")
    ours = site.jobs()
    assert without not in ours
    assert {ours[job]["tenant"] for job in plain} == {"vision", "speech"}
    assert ours[fails]["phase"] == "failed"


def test_an_account_that_is_owed_gpus_gets_them_and_the_other_goes_on_later(site: Site) -> None:
    over = site.slurm.root / "over"
    many = [site.counting("games", 20, over=str(over)) for _ in range(10)]  # all GPUs
    wait_for(lambda: sum(site.counted("games", job) > 0 for job in many) == 10, "one account to hold all GPUs")

    few = [site.counting("news", 20, over=str(over)) for _ in range(3)]
    wait_for(lambda: any(site.counted("news", job) for job in few), "the other account to get some")
    wait_for(lambda: any(site.restarts(job) for job in many), "a job to be requeued")
    over.touch()

    for job in (*many, *few):
        wait_for(lambda job=job: site.accounted(job) == ("COMPLETED", "0:0"), f"job {job} to end")  # type: ignore[misc]
    assert all(site.counted("games", job) >= 20 for job in many)


def test_jobs_survive_the_service_and_owners_cancel_and_hold_as_ever(site: Site) -> None:
    over = site.slurm.root / "over2"
    runs = site.counting("games", 20, over=str(over))
    wait_for(lambda: site.counted("games", runs) > 0, "a job to run")
    site.stop(signal.SIGKILL)
    cancelled = site.counting("games", 20, over=str(over))
    site.slurm.run_as("games", "scancel", cancelled)
    held = site.submit("news", "exit 0", "--gres=gpu:1", "--hold")
    before = site.counted("games", runs)
    wait_for(lambda: site.counted("games", runs) > before, "the job to go on without the service")
    site.serve("--look", "0.5s")

    other = site.counting("news", 20, over=str(over))
    wait_for(lambda: site.counted("news", other) > 0, "another job to run")
    site.slurm.run_as("news", "scancel", other)
    wait_for(lambda: site.jobs().get(other, {}).get("phase") == "cancelled", "a cancelled job to leave")
    wait_for(lambda: site.accounted(held)[0] == "PENDING", "the accounting to have the job that waits on hold")
    site.slurm.run_as("news", "scontrol", "release", held)
    wait_for(lambda: site.accounted(held) == ("COMPLETED", "0:0"), "a job that its owner released")
    over.touch()
    wait_for(lambda: site.accounted(runs) == ("COMPLETED", "0:0"), "the first job to end")
    assert site.restarts(runs) == 0


def test_jobs_are_not_submitted_or_cancelled_behind_the_back_of_slurm(site: Site) -> None:
    over = site.slurm.root / "over3"
    job = site.counting("games", 20, over=str(over))
    wait_for(lambda: job in site.jobs(), "our log to have the job")

    code, text = site.run("cancel", site.jobs()[job]["id"])

    assert code != 0
    assert "scancel" in text
    over.touch()
