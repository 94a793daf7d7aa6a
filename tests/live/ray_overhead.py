"""From a decision to the first line of the job on a real Ray, and to the lease being over; `python tests/live/ray_overhead.py`.

Each sample is one lease on an idle cluster, launched by a runner without the service. For comparison, a bare actor of
Ray that answers one call is measured in between, because the machine may be busy.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest does

from fairlead.engines.leases import OVER, Gpu, Lease  # noqa: E402
from fairlead.engines.ray.runner import RayRunner  # noqa: E402
from fairlead.engines.requests import Command  # noqa: E402
from ray_cluster import missing, shared_cluster  # noqa: E402
from waiting import wait_for  # noqa: E402


def sample(runner: RayRunner, number: int) -> tuple[float, float]:
    """Seconds until the first line of the job, and from its last line until its GPU is free again."""
    lease = Lease("job", number, (Gpu("v100-1", "v100", None),), Command("date +%s.%N", workdir="/tmp"))
    began_s = time.time()
    runner.launch(lease)
    wait_for(lambda: runner.look([lease.key]).sight(lease.key).condition in OVER, "a lease to be over")
    printed_s = float((runner.directory(lease.key) / "log").read_text())
    return printed_s - began_s, time.time() - printed_s


def bare_actor(address: str) -> float:
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="error", ignore_reinit_error=True)

    class Bare:
        def answer(self) -> int:
            return 1

    began_s = time.time()
    actor = ray.remote(num_cpus=0, num_gpus=1)(Bare).remote()
    ray.get(actor.answer.remote())
    ray.kill(actor)
    return time.time() - began_s


def main(samples: str = "10") -> int:
    reason = missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    cluster = shared_cluster()
    try:
        root = Path(tempfile.mkdtemp(prefix="fl-ray-overhead-", dir="/tmp"))
        runner = RayRunner(root, cluster.driver, gpus_of=lambda: {"v100-1": 2})
        runner.look([])
        times = [(*sample(runner, number), bare_actor(cluster.address)) for number in range(1, int(samples) + 1)]
        for name, column in zip(("first line", "GPU free again", "bare actor"), zip(*times, strict=True), strict=True):
            print(f"{name}: {min(column):.2f} / {median(column):.2f} / {max(column):.2f} s (least, median, most)")
    finally:
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
