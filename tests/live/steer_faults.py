"""Faults on a real Slurm whose jobs are steered; `make steer-faults`, or `python tests/live/steer_faults.py drain ...`.

Each fault hits a service with counting jobs of two accounts. Afterwards every job has ended once, in Slurm's accounting and
in ours; scripts that count have counted every step; no GPU is held, and nothing is on hold. Each script writes down which
copy of it makes a step, so that two copies at work show.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest does

from test_slurm_steer_live import Site  # noqa: E402

from slurm_cluster import STEERED, missing, steered_cluster  # noqa: E402
from waiting import wait_for  # noqa: E402

STEPS = 60
AWAY_S = 30.0
# Counts, and notes the process of every step. It runs until `over` exists, so that it runs when a fault comes.
COUNTING = """
count=$HOME/$SLURM_JOB_ID
n=$(cat $count 2>/dev/null || echo 0)
trap 'exit 85' USR1
while [ $n -lt {steps} ] || [ ! -e {over} ]; do
  sleep 0.1 & wait $!
  n=$((n + 1)); echo $n > $count.new && mv $count.new $count; echo "$(date +%s.%N) $$ $n" >> $count.steps
done
"""
ENDED = {"COMPLETED": "finished", "CANCELLED": "cancelled", "FAILED": "failed"}
# Python reads this at its start: the clock of the machine, as far from the truth as a file says.
WRONG_CLOCK = """
import time
_true = time.time
def _wrong():
    try:
        with open({path!r}) as file:
            return _true() + float(file.read())
    except (OSError, ValueError):
        return _true()
time.time = _wrong
"""


class Scene:
    """A service over an empty cluster, with some jobs that count."""

    def __init__(self, path: Path, *options: str) -> None:
        self.site = Site(steered_cluster(), path)
        self.slurm = self.site.slurm
        self.over = self.slurm.root / f"over-{time.monotonic_ns()}"  # users cannot enter folders of pytest
        self.offset = path / "offset"
        self.owners: dict[str, str] = {}
        self.ends: dict[str, tuple[str, str]] = {}
        self.site.serve("--policy", "fifo", *options)  # fifo stops no job for another

    def count(self, user: str, number: int, *options: str) -> list[str]:
        """New jobs of the user that run until they may end."""
        script = COUNTING.format(steps=STEPS, over=self.over)
        jobs = [self.site.submit(user, script, *(options or ("--gres=gpu:1",))) for _ in range(number)]
        self.owners |= dict.fromkeys(jobs, user)
        self.ends |= dict.fromkeys(jobs, ("COMPLETED", "0:0"))
        return jobs

    def counted(self, job: str) -> int:
        return self.site.counted(self.owners[job], job)

    def under_way(self, *jobs: str) -> None:
        wait_for(lambda: all(self.counted(job) > 2 for job in jobs), "jobs to be under way")

    def goes_on(self, *jobs: str) -> None:
        before = {job: self.counted(job) for job in jobs}
        wait_for(lambda: all(self.counted(job) > before[job] for job in jobs), "jobs to make steps")

    def state(self, job: str) -> str:
        return self.slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T", check=False).strip()

    def reason(self, job: str) -> str:
        return self.slurm.run("squeue", "-h", "-j", job, "-o", "%r", check=False).strip()

    def node_of(self, job: str) -> str:
        return self.slurm.run("squeue", "-h", "-j", job, "-o", "%N", check=False).strip()

    def waits(self, *jobs: str) -> None:
        """Until our queue has them as jobs that wait, with a reason."""

        def waiting() -> bool:
            ours = self.site.jobs()
            return all(ours.get(job, {}).get("phase") == "waiting" and ours[job]["reason"] for job in jobs)

        wait_for(waiting, "jobs to wait with a reason")

    def account_for_all(self) -> dict[str, int]:
        """Let all end, and check that nothing is lost, doubled, held or leaked. Returns copies that overlapped, by job."""
        self.over.touch()
        wait_for(lambda: not self._missing(), "all jobs to end in Slurm's accounting")
        if self.site.daemons:
            self._account_for_our_log()
        wait_for(self._all_free, "all GPUs to be free")
        assert not self.slurm.run("squeue", "-h", "-a", f"--partition={STEERED}").strip(), "nothing is on hold"
        short = {job: self.counted(job) for job, (state, _) in self.ends.items() if state == "COMPLETED"}
        assert all(steps >= STEPS for steps in short.values()), short
        return {job: overlaps for job in self.owners if (overlaps := self.overlaps(job))}

    def _account_for_our_log(self) -> None:
        phases = {job: ENDED[state] for job, (state, _) in self.ends.items()}
        wait_for(lambda: {job: self.site.jobs()[job]["phase"] for job in phases} == phases, "our log to know the ends")
        code, text = self.site.run("queue", "-o", "json")
        assert (code, json.loads(text)["jobs"]) == (0, []), "nothing waits or runs"
        wait_for(self._free_in_our_log, "the service to know that all GPUs are free")

    def _missing(self) -> dict[str, tuple[str, str]]:
        return {job: self.site.accounted(job) for job, end in self.ends.items() if self.site.accounted(job) != end}

    def _all_free(self) -> bool:
        used = self.slurm.run("sinfo", "-h", "-N", "-O", "NodeList:|,GresUsed:|")
        return all("gpu" not in line or ":0" in line for line in used.splitlines())

    def _free_in_our_log(self) -> bool:
        code, text = self.site.run("nodes", "-o", "json")
        nodes: list[dict[str, Any]] = json.loads(text)["nodes"] if code == 0 else []
        return bool(nodes) and all(node["free"] == node["gpus"] for node in nodes)

    def overlaps(self, job: str) -> int:
        """How often a step of one copy comes between steps of another: each copy should be over before the next."""
        seen, last, again = set[str](), "", 0
        with suppress(OSError):
            for line in (self.slurm.home(self.owners[job]) / f"{job}.steps").read_text().splitlines():
                pid = line.split()[1]
                again += pid != last and pid in seen
                seen.add(pid)
                last = pid
        return again

    def close(self) -> None:
        while self.site.daemons:
            self.site.stop()
        self.slurm.clear()


# ---- quick faults ----------------------------------------------------------------------------------------------------


def drain(scene: Scene) -> None:
    """A node is drained: its job ends there, others do not begin there, and it is used again later."""
    runs = scene.count("games", 2, "--gres=gpu:v100:4")
    scene.under_way(*runs)
    node = scene.node_of(runs[0])
    scene.slurm.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    waits = scene.count("news", 1, "--gres=gpu:v100:4")
    scene.waits(*waits)
    scene.goes_on(*runs)
    assert scene.node_of(runs[0]) == node
    scene.slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
    scene.over.touch()


def users(scene: Scene) -> None:
    """Users cancel, release and requeue their jobs."""
    runs = scene.count("games", 2, "--gres=gpu:v100:4")
    scene.under_way(*runs)
    waits = scene.count("games", 2, "--gres=gpu:v100:4")
    scene.waits(*waits)
    refused = scene.slurm.run_as("games", "scontrol", "release", waits[0], check=False)
    assert "denied" in refused, refused
    scene.slurm.run_as("games", "scancel", waits[0])
    scene.ends[waits[0]] = ("CANCELLED", "0:0")
    scene.slurm.run_as("games", "scontrol", "requeue", runs[0])  # it loses its GPUs, and comes again
    scene.goes_on(runs[1])
    wait_for(lambda: scene.site.jobs()[waits[0]]["phase"] == "cancelled", "the cancelled job to leave")


def administrator(scene: Scene) -> None:
    """root releases a job that waits, and lifts a hold of its own when there is room: both jobs wait for their turn."""
    runs = scene.count("games", 2, "--gres=gpu:v100:4")
    scene.under_way(*runs)
    waits = scene.count("news", 2, "--gres=gpu:v100:4")
    scene.waits(*waits)
    scene.slurm.run("scontrol", "release", waits[0])
    wait_for(lambda: "JobHeldUser" in scene.reason(waits[0]), "the job to be held again")
    scene.slurm.run("scontrol", "hold", *waits)
    wait_for(lambda: all(scene.site.jobs()[job]["phase"] == "held" for job in waits), "the holds to be noticed")
    scene.slurm.run_as("games", "scancel", *runs)
    scene.ends |= dict.fromkeys(runs, ("CANCELLED", "0:0"))
    wait_for(lambda: all(scene.state(job) == "CANCELLED" for job in runs), "room")
    scene.slurm.run("scontrol", "release", *waits)
    scene.under_way(*waits)
    wait_for(lambda: all(scene.site.jobs()[job]["phase"] == "running" for job in waits), "Fairlead to run both")


def foreign(scene: Scene) -> None:
    """A job of another partition takes GPUs first: ours wait, with a reason, and start when they are free."""
    stop = scene.slurm.root / f"foreign-{time.monotonic_ns()}"
    words = ("--partition=all", "--gres=gpu:4", "--nodes=2", "--constraint=v100", "--output=/dev/null")
    taken = scene.slurm.run("sbatch", "--parsable", *words, f"--wrap=until [ -e {stop} ]; do sleep 0.2; done").strip()
    wait_for(lambda: scene.state(taken) == "RUNNING", "the foreign job to run")
    ours = scene.count("games", 1, "--gres=gpu:v100:4")
    scene.waits(*ours)
    stop.touch()
    scene.under_way(*ours)


def gone(scene: Scene) -> None:
    """Fairlead is killed for good while jobs run, wait, and are being stopped: after `leave` all end through Slurm alone."""
    runs = scene.count("games", 2, "--gres=gpu:v100:4")
    scene.under_way(*runs)
    waits = scene.count("news", 4)
    scene.waits(*waits[-1:])
    scene.slurm.run_as("games", "scontrol", "requeue", runs[0])  # it may be held, released or pinned when all ends here
    scene.site.stop(signal.SIGKILL)
    code, text = scene.site.run("slurm", "leave", "--yes", "--state", str(scene.site.home / "state"))
    assert code == 0, text


# ---- slow ones -------------------------------------------------------------------------------------------------------


def controller(scene: Scene) -> None:
    """slurmctld is killed for half a minute: jobs keep running, nothing is lost, and jobs that wait start later."""
    runs = scene.count("games", 2, "--gres=gpu:v100:4")
    scene.under_way(*runs)
    waits = scene.count("news", 2, "--gres=gpu:v100:4")
    scene.waits(*waits[-1:])
    scene.slurm.wait_until_saved()
    scene.slurm.kill("slurmctld")
    time.sleep(AWAY_S)
    scene.goes_on(*(job for job in runs if scene.counted(job)))
    code, text = scene.site.run("status")
    assert code == 0, text
    scene.slurm.start_controller()


def node(scene: Scene) -> None:
    """A slurmd is killed: its jobs start again elsewhere, and their old processes end when it is back."""
    runs = scene.count("games", 6)
    scene.under_way(*runs)
    name = scene.node_of(runs[0])
    there = [job for job in runs if scene.node_of(job) == name]
    scene.slurm.kill(f"slurmd-{name}")
    wait_for(lambda: all(scene.site.restarts(job) for job in there), "its jobs to be requeued")
    scene.slurm.start_node(name)
    wait_for(lambda: "idle" in scene.slurm.run("sinfo", "-h", "-n", name, "-o", "%T"), "the node to be back")


def database(scene: Scene) -> None:
    """slurmdbd is killed: jobs run and start as before, and the accounting gets to know it later."""
    runs = scene.count("games", 3)
    scene.under_way(*runs)
    scene.slurm.kill("slurmdbd")
    later = scene.count("news", 2)
    scene.under_way(*later)
    scene.slurm.start_database()


def clock(scene: Scene) -> None:
    """The clock of the service's machine steps by an hour forwards, then by two backwards."""
    runs = scene.count("games", 2)
    scene.under_way(*runs)
    for offset_s in (3600, -3600):
        scene.offset.write_text(str(offset_s))
        later = scene.count("news", 2)
        scene.under_way(*later)
        scene.goes_on(*runs)
    assert all(scene.site.restarts(job) == 0 for job in runs), "no job loses its GPUs by that"


QUICK: tuple[Callable[[Scene], None], ...] = (drain, users, administrator, foreign, gone)
ALL = (*QUICK, controller, node, database, clock)


def wrong_clock(path: Path) -> None:
    """Let the service's processes read a clock that a file sets wrong."""
    folder = path / "clock"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WRONG_CLOCK.format(path=str(path / "offset")))


def main(*names: str) -> int:
    reason = missing(accounting=True)
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    try:
        for fault in ALL:
            if names and fault.__name__ not in names:
                continue
            began_s = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="fl-steer-", dir="/tmp") as path:
                wrong_clock(Path(path))
                scene = Scene(Path(path))
                try:
                    fault(scene)
                    overlaps = scene.account_for_all()
                except AssertionError:
                    print((Path(path) / "log").read_text()[-4000:], file=sys.stderr)
                    raise
                finally:
                    scene.close()
            told = f"steps of two copies interleaved in {overlaps}" if overlaps else "never two copies"
            print(f"{fault.__name__}: {len(scene.ends)} jobs, {told}, {time.monotonic() - began_s:.0f} s", flush=True)
    finally:
        steered_cluster().stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
