"""Whole runs at scale: 2,000 GPUs of six types, rounds of 360 s.

`plain` is the default workload at load 0.9. Load counts with the mean speed over all types, and good policies use
the fast ones, so little of it waits; `crowded` is made so that thousands do.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import ROOT, spend

CLUSTER = "h100:200x8,a100:400x8,v100:400x4,p100:400x4,t4:400x4,k80:200x4"
WORKLOADS: Mapping[str, str] = {
    "plain": "--jobs 10000 --load 0.9 --seed 0",
    "crowded": "--jobs 10000 --load 3 --durations gavel --tenants 20 --seed 0",
    "long": "--jobs 100000 --load 0.9 --seed 0",
}
MEMORY_MIB = 2048
# The workload of Sia's artifact on the cluster of its paper: its own simulator took 60 CPU s with Gavel's policy.
SIA = Path("../shared/data/pollux/workloads-realistic/workload-1.csv")
SIA_CLUSTER = "t4:24x4,2080ti:24x8,a100:16x8"
SIA_S = 60.0


@dataclass(frozen=True, slots=True)
class Target:
    policy: str
    workload: str
    cpu_s: float


TARGETS = (
    *(
        Target(policy, workload, 300)
        for workload in ("plain", "crowded")
        for policy in ("gavel", "oef-coop", "fft", "fft-ranked", "hlas")
    ),
    *(Target(policy, workload, 1800) for workload in ("plain", "crowded") for policy in ("hops", "hops-late")),
    *(Target(policy, "long", 120) for policy in ("fifo", "srtf", "las", "tiresias")),
)


def run(policies: Sequence[str] = ()) -> None:
    print(f"cluster {CLUSTER}; CPU s of one core and memory of the whole process")
    with tempfile.TemporaryDirectory() as folder:
        for workload, options in WORKLOADS.items():
            chosen = [t for t in TARGETS if t.workload == workload and (not policies or t.policy in policies)]
            if not chosen:
                continue
            trace = f"{folder}/{workload}.csv"
            spend(["trace", "generate", "--cluster", CLUSTER, *options.split(), "--out", trace])
            print(f"{workload}: fairlead trace generate --cluster ... {options}")
            for target in chosen:
                row = _simulate(["--cluster", CLUSTER, "--trace", trace, "--policy", target.policy], target.cpu_s)
                print(f"  {target.policy:12} {row}", flush=True)
    _run_sia()


def _run_sia() -> None:
    if not (ROOT / SIA).exists():
        print(f"Sia's workload: left out, {SIA} is not there")
        return
    print(f"Sia's workload, 160 jobs on 64 GPUs, gavel; Sia's own simulator took {SIA_S:g} CPU s: {SIA}")
    for round_s in ("360", "60"):
        where = ["--cluster", SIA_CLUSTER, "--trace", str(SIA), "--policy", "gavel", "--round", round_s]
        print(f"  rounds of {round_s:>3} s {_simulate(where, SIA_S)}", flush=True)


def _simulate(where: Sequence[str], target_s: float) -> str:
    spent = spend(["simulate", *where, "-o", "json"])
    summary = json.loads(spent.output)
    met = "met" if spent.cpu_s <= target_s and spent.memory_mib <= MEMORY_MIB else "MISSED"
    return (
        f"{spent.cpu_s:7.1f} CPU s, {spent.memory_mib:5.0f} MiB (target {target_s:g} s, {MEMORY_MIB} MiB: {met}); "
        f"{summary['rounds']:,} rounds, {summary['decisions']:,} decided, "
        f"{summary['mean_active_jobs']:,.0f} active jobs on average"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.scale")
    parser.add_argument("policies", nargs="*", help="only these; default: all")
    run(parser.parse_args().policies)
