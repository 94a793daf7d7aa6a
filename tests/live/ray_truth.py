"""The same thirty jobs in the simulator and on a real Ray, at emulated pace, as `steer_truth.py` has it for Slurm; `make ray-truth`.

    python tests/live/ray_truth.py                      # oef-coop: six minutes
    python tests/live/ray_truth.py fifo --keep FOLDER

A job sleeps for as long as the profile says that it would train on the type that it got. The simulator is given the
latencies that the run on Ray had, and nothing else; both must agree within 5 % on the mean JCT and on the makespan.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest does

import steer_truth  # noqa: E402
from homes import Site  # noqa: E402
from ray_faults import RaySite  # noqa: E402
from steer_truth import DECLARED_S, RESTORE_S, SLEEPER, TYPES, Measured, Workload, draw, lasts_s  # noqa: E402

from fairlead.model.jobs import JobSpec  # noqa: E402
from fairlead.service.client import Client  # noqa: E402
from ray_cluster import ON_LOOPBACK, RayTestCluster, TestNode, missing  # noqa: E402
from waiting import wait_for  # noqa: E402

NODES = [TestNode(f"{type_}-{number}", type_, 4) for type_ in TYPES for number in (1, 2)]
TRUTH = Workload(
    tuple(replace(spec, nodes=None) for spec in draw(0, 30, 40.0, 80.0, 120.0, 60.0)),
    round_s=30.0,
)
NODE = r"""$(sed -n 's/.*"gpus": \[{"node": "\([^"]*\)".*/\1/p' $FAIRLEAD_LEASE)"""  # the first of the lease


def run_on_ray(site: RaySite, policy: str, workload: Workload) -> Measured:
    (site.home / "sleeper.sh").write_text(SLEEPER)
    more = ("--restart-cost", f"{DECLARED_S:g}s", "--estimates", "off")
    daemon = site.serve(policy, *more, round_s=workload.round_s)
    try:
        saved = json.loads((site.home / ".config/fairlead/credentials.json").read_text())
        client = Client(saved["url"], saved["token"])
        zero_s = (
            math.ceil(time.time() / workload.round_s) * workload.round_s
        )  # rounds begin at multiples of their length
        submitted, specs = dict[str, float](), dict[str, JobSpec]()
        for spec in workload.jobs:
            time.sleep(max(zero_s + spec.arrival_s - time.time(), 0.0))
            at_s = time.time()
            id_ = client.post("/jobs", document(site.home, spec))["id"]
            submitted[id_], specs[id_] = at_s, spec
        wait_for(lambda: {job["phase"] for job in client.get("/jobs")["jobs"]} == {"finished"}, "all jobs to end")
        notes = {id_: steer_truth.read_notes(site.home / f"{id_}.notes") for id_ in specs}
        done = {id_: steer_truth.done_part(specs[id_], lines) for id_, lines in notes.items()}
        assert all(abs(part - 1) < 0.1 for part in done.values()), f"jobs did more or less than their work: {done}"
        site.run("journal", "--out", str(site.home / "journal.jsonl"))
    finally:
        site.stop(daemon)
    return steer_truth.measure(site.home / "journal.jsonl", notes, submitted, {id_: id_ for id_ in specs})


def document(home: Path, spec: JobSpec) -> dict[str, object]:
    paces = " ".join(f"{type_}={lasts_s(spec, type_):.3f}" for type_ in TYPES)
    return {
        "name": spec.id,
        "tenant": spec.tenant,
        "model": spec.model,
        "steps": spec.steps,
        "resources": {"accelerators": [f"{type_}:{spec.gpus}" for type_ in TYPES]},
        "grace": "60s",
        "workdir": str(home),
        "run": f"SLURM_JOB_ID=$FAIRLEAD_JOB SLURMD_NODENAME={NODE} exec bash sleeper.sh {RESTORE_S:g} {paces}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("policies", nargs="*", default=("oef-coop",), help="policies of rounds")
    parser.add_argument("--keep", type=Path, help="folder for the journals and the jobs' records")
    options = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    cluster, real = RayTestCluster(NODES), dict[str, Measured]()
    try:
        for policy in options.policies:
            home = Path(tempfile.mkdtemp(prefix="fl-ray-truth-", dir="/tmp"))
            engine = ("--engine", "ray", "--address", cluster.address)
            real[policy] = run_on_ray(
                Site(cluster, home, engine, f"{Path(sys.executable).parent}:/usr/bin:/bin", ON_LOOPBACK), policy, TRUTH
            )
            if options.keep is not None:
                shutil.copytree(home, options.keep / policy, dirs_exist_ok=True)
    finally:
        cluster.stop()
    simulated = {policy: steer_truth.run_simulated(policy, TRUTH, run) for policy, run in real.items()}
    return 0 if steer_truth.report(real, simulated, "Ray") else 1


if __name__ == "__main__":
    sys.exit(main())
