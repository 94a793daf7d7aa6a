"""Thirty jobs of two accounts on a real Slurm, steered by a service that is killed again and again; `make steer-kills`.

    python tests/live/steer_kills.py 50                 # kills, spread over the policies
    python tests/live/steer_kills.py 0 hops fft         # these policies, without kills

Every job must end once in Slurm's accounting with its own exit code, and scripts that count must have counted every step.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest does

from test_slurm_steer_live import Site  # noqa: E402

from slurm_cluster import missing, steered_cluster  # noqa: E402
from waiting import wait_for  # noqa: E402

STEPS = 100
REQUEUES = "[ $SLURM_RESTART_COUNT ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }"  # once, by itself
DEAF = "trap '' USR1; for i in $(seq 60); do sleep 0.1; done"


def submit_all(site: Site) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """How each job must end, and the owners of those that count."""
    counting = {site.counting(user, STEPS): user for user in ("games", "news") for _ in range(8)}
    counting |= {site.counting("news", STEPS, "--gres=gpu:2"): "news" for _ in range(2)}
    arrays = [(site.submit(user, "sleep 1", "--gres=gpu:1", "--array=1-3")) for user in ("games", "news")]
    jobs = [*counting, *(f"{array}_{task}" for array in arrays for task in (1, 2, 3))]
    jobs += [site.submit("games", "srun sleep 1", "--nodes=2", "--gres=gpu:1") for _ in range(2)]
    jobs += [site.submit("games", REQUEUES, "--gres=gpu:1"), site.submit("news", DEAF, "--gres=gpu:1")]
    fails = [site.submit(user, "exit 3", "--gres=gpu:1") for user in ("games", "news")]
    return dict.fromkeys(jobs, ("COMPLETED", "0:0")) | dict.fromkeys(fails, ("FAILED", "3:0")), counting


def run(policy: str, kills: int, seed: int) -> None:
    cluster = steered_cluster()
    site = Site(cluster, Path(tempfile.mkdtemp(prefix="fl-steer-", dir="/tmp")))
    began_s, chance = time.monotonic(), random.Random(seed)
    site.serve("--policy", policy)
    expected, counting = submit_all(site)
    for _ in range(kills):
        time.sleep(chance.uniform(0.0, 4.0))  # a random instant of what it does
        site.stop(signal.SIGKILL)
        site.serve()

    def over() -> bool:
        return all(site.accounted(job) == end for job, end in expected.items())

    wait_for(over, "all jobs to end in Slurm's accounting")
    wrong = {job: site.counted(user, job) for job, user in counting.items() if site.counted(user, job) != STEPS}
    restarts = sum(site.restarts(job) for job in expected)
    ends = {"COMPLETED": "finished", "FAILED": "failed"}
    phases = {job: ends[state] for job, (state, _) in expected.items()}
    wait_for(lambda: {job: site.jobs()[job]["phase"] for job in expected} == phases, "our log to know the same ends")
    audit = _audit(site)
    site.stop()
    print(
        f"{policy}: {len(expected)} jobs ended as they should, {kills} kills, {restarts} restarts of jobs, "
        f"{len(wrong)} wrong counts, {time.monotonic() - began_s:.0f} s; audit: {audit}",
        flush=True,
    )
    assert not wrong, wrong
    cluster.clear()


def _audit(site: Site) -> str:
    """What the audit of the service says about each promise. Runs of a minute are too short for most policies to keep them."""
    code, text = site.run("audit", "-o", "json")
    assert code == 0, text
    return ", ".join(f"{one['promise']} {one['standing']} {one['value']}" for one in json.loads(text)["promises"])


def main(kills: str = "50", *policies: str) -> int:
    reason = missing(accounting=True)
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    chosen = policies or ("oef-coop", "hops", "fft")
    try:
        for number, policy in enumerate(chosen):
            run(policy, (int(kills) + number) // len(chosen), number)
    finally:
        steered_cluster().stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
