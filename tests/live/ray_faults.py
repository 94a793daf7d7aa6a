"""Twelve jobs of two tenants on a real Ray while a node, the head and the service are killed; `make ray-faults`.

    python tests/live/ray_faults.py 30                  # kill -9 of the whole service at random instants

Two of the jobs train with PyTorch over two nodes (gloo), the others count their steps. Every job must end once, the counts
and the losses must be those of runs that nobody disturbed, and nothing may be left in Ray.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest does

from homes import Site  # noqa: E402

from ray_cluster import ON_LOOPBACK, RayTestCluster, TestNode, missing, shared_cluster  # noqa: E402
from waiting import wait_for  # noqa: E402

POLICY, STEPS, TRAINED = "las", 60, 40
COUNTING = """
import os, sys, time
from fairlead import lease
saved = lease.restore()
step = int((saved / "step").read_text()) if saved else 0
def save(folder): (folder / "step").write_text(str(step))
while step < int(sys.argv[1]):
    time.sleep(0.05)
    step += step < 40 or os.path.exists(sys.argv[2])
    lease.report(step)
    if step % 10 == 0: lease.checkpoint(save)
    if lease.should_stop(): lease.stop(save)
open(f"ends-{os.environ['FAIRLEAD_JOB']}", "a").write(f"{step}\\n")
"""
RaySite = Site[RayTestCluster]


def site_in(home: Path, cluster: RayTestCluster) -> RaySite:
    engine = ("--engine", "ray", "--address", cluster.address)
    return Site(
        cluster, home, engine, f"{Path(sys.executable).parent}:/usr/bin:/bin", {"LANG": "C.UTF-8", **ON_LOOPBACK}
    )


def submit_all(site: RaySite, gangs: int) -> tuple[list[str], dict[str, Path]]:
    """Jobs that count, and gangs with the files that they write."""
    (site.home / "count.py").write_text(COUNTING)
    over, out = site.home / "over", {}
    for number in range(gangs):
        losses = site.home / f"loss-{number}"
        job = site.submit(
            f"exec {sys.executable} {HERE}/train_gang.py {TRAINED} {over} {losses}",
            tenant="vision",
            processes="per-node",
            steps=TRAINED,
            grace="60s",
            resources={"accelerators": "V100:3"},  # more than a node has
        )
        out[job] = losses
    counting = [
        site.submit(
            f"exec {sys.executable} count.py {STEPS} {over}",
            tenant=("vision", "speech")[number % 2],
            steps=STEPS,
            grace="60s",
            resources={"accelerators": ["V100:1", "K80:1"]},
        )
        for number in range(12 - gangs)
    ]
    return counting, out


def run(home: Path, kills: int, *, gangs: int = 2, seed: int = 0) -> str:
    """Disturb everything, let the jobs end, and check how they ended. Returns what happened as a sentence."""
    cluster, chance, began_s = shared_cluster(), random.Random(seed), time.monotonic()
    site = site_in(home, cluster)
    daemon = site.serve(POLICY)
    try:
        cluster.add(TestNode("v100-2", "v100", 2))
        wait_for(lambda: len(site.read("nodes")["nodes"]) == 3, "the new node to join")
        counting, gangs_out = submit_all(site, gangs)
        jobs = [*counting, *gangs_out]
        for number in range(kills):
            time.sleep(chance.uniform(0.0, 4.0))  # a random instant of what it does
            if number == kills // 3:
                cluster.kill_node("v100-1")
            if number == 2 * kills // 3:
                cluster.restart_head()
            daemon = kill(site, daemon)
            if number == kills // 3:
                cluster.start_node("v100-1")
        (site.home / "over").touch()
        wait_for(lambda: all(site.phase(job) == "finished" for job in jobs), "all jobs to end")
        wait_for(lambda: nothing_left(cluster), "Ray to be empty")
        check(site, counting, gangs_out)
        leases = sum(1 for _ in site.home.glob("state/leases/*/[0-9]*"))
        return f"{len(jobs)} jobs ended once after {leases} leases, {kills} kills, {time.monotonic() - began_s:.0f} s"
    finally:
        daemon.kill()
        daemon.wait()
        cluster.clear()
        cluster.remove("v100-2")


def kill(site: RaySite, daemon: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Kill -9 of the service and of its scheduler, and start it again."""
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    for pid in (daemon.pid, *map(int, children)):
        os.kill(pid, signal.SIGKILL)
    daemon.wait()
    return site.serve(POLICY)


def nothing_left(cluster: RayTestCluster) -> bool:
    look = cluster.driver.look("")
    return not look.actors and not look.groups


def check(site: RaySite, counting: list[str], gangs: dict[str, Path]) -> None:
    for job in counting:
        ends = (site.home / f"ends-{job}").read_text().split()
        assert ends == [str(STEPS)], (job, ends)
    if gangs:
        from train_gang import undisturbed

        wanted = undisturbed(TRAINED)
        for job, out in gangs.items():
            step, loss = out.read_text().split()
            assert int(step) == TRAINED, (job, step)
            assert abs(float(loss) - wanted) < 1e-9, (job, loss, wanted)
    log = [json.loads(line) for line in site.run("journal").splitlines()]
    finished = [job for record in log if record.get("event") == "finished" for job in record["jobs"]]
    assert sorted(finished) == sorted([*counting, *gangs]), "every job ends once in the log"


def main(kills: str = "30", seed: str = "0") -> int:
    reason = missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    try:
        print(run(Path(tempfile.mkdtemp(prefix="fl-ray-home-", dir="/tmp")), int(kills), seed=int(seed)))
    finally:
        shared_cluster().stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
