"""`make bench`: CPU seconds of one thread, beside targets and peers, with the command that made each number.

`python -m benchmarks NAME...` runs only these sections; `-o json` prints the runs as JSON. Data is read from ../shared/data
beside the checkout; a run whose data is missing says so and is left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measuring import ROOT, spend

DATA = Path("../shared/data")
GAVEL = DATA / "gavel"
MIXED = "v100:{0},p100:{0},k80:{0},a100:{0}"


@dataclass(frozen=True, slots=True)
class Run:
    """One command line of ours, against a target and, where somebody measured one, a peer's CPU seconds."""

    name: str
    command: str
    target_s: float
    needs: Path | None = None
    peer_s: float | None = None
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    name: str
    cpu_s: float
    target_s: float
    ratio_to_peer: float | None
    mean_active_jobs: float | None
    command: str


def _philly(policy: str, each: int) -> Run:
    return Run(
        f"{policy}, Philly, {4 * each} GPUs",
        f"simulate --cluster {MIXED.format(each)} --trace {DATA}/philly-derived/philly.csv --policy {policy} "
        "--skip-impossible -o json",
        60.0,
        DATA / "philly-derived/philly.csv",
    )


# Gavel's own simulator took 15.8 CPU s for the first run, on a machine of this kind under load.
RUNS = (
    Run(
        "gavel, 1000 jobs, 36:36:36",
        f"simulate --cluster v100:36,p100:36,k80:36 --trace {GAVEL}/traces/generated/philly_single_n1000_l600_s0.trace "
        f"--throughputs {GAVEL}/simulation_throughputs.json --policy gavel --restart-cost 0s -o json",
        1.6,
        GAVEL / "simulation_throughputs.json",
        15.8,
        "Gavel's simulator",
    ),
    *(_philly(policy, each) for policy in ("fifo", "las") for each in (100, 500)),
    Run("convert the Philly CSV", f"trace convert {DATA}/philly-derived/philly.csv --out /dev/null -o json", 5.0, DATA),
    Run("read Gavel's table", f"rates list --throughputs {GAVEL}/simulation_throughputs.json -o json", 1.0, GAVEL),
    Run("start: --help", "--help", 0.3),
    Run("start: version", "version -o json", 0.3),
)
SECTIONS = (
    "oef",
    "fft",
    "hops",
    "hare",
    "baselines",
    "decisions",
    "scale",
    "live",
    "dashboards",
    "estimating",
    "switching",
    "steering",
    "years",
)  # each a module with a run() that prints its own table


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks")
    parser.add_argument("names", nargs="*", help=f"core, {', '.join(SECTIONS)}; default: all")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    chosen = parser.parse_args()
    names = chosen.names or ["core", *SECTIONS]
    for name in names:
        if name == "core":
            run_core(chosen.output)
        elif name in SECTIONS:
            print(f"\n== {name}: python -m benchmarks.{name}", flush=True)
            importlib.import_module(f"benchmarks.{name}").run()
        else:
            parser.error(f"there is no section {name}")


def run_core(output: str) -> None:
    rows: list[Measured] = []
    for run in RUNS:
        if run.needs is not None and not (ROOT / run.needs).exists():
            print(f"{run.name}: left out, {run.needs} is not there", file=sys.stderr)
            continue
        rows.append(measure(run))
        if output == "table":
            print(_line(rows[-1], run), flush=True)
    if output == "json":
        print(json.dumps([asdict(row) for row in rows], indent=2))


def measure(run: Run) -> Measured:
    """User and system time of the whole process, start-up included; the best of three for short ones."""
    spent = [spend(shlex.split(run.command)) for _ in range(3 if run.target_s < 5 else 1)]
    cpu_s, output = min(each.cpu_s for each in spent), spent[0].output
    crowd = json.loads(output).get("mean_active_jobs") if output.startswith("{") else None
    ratio = None if run.peer_s is None else run.peer_s / cpu_s
    return Measured(run.name, cpu_s, run.target_s, ratio, crowd, f"fairlead {run.command}")


def _line(row: Measured, run: Run) -> str:
    peer = f", {row.ratio_to_peer:.1f}x faster than {run.peer}" if row.ratio_to_peer is not None else ""
    crowd = f", {row.mean_active_jobs:,.0f} active jobs on average" if row.mean_active_jobs is not None else ""
    met = "met" if row.cpu_s <= row.target_s else "MISSED"
    return f"{row.name:32} {row.cpu_s:7.2f} CPU s (target {row.target_s:g}: {met}{peer}{crowd})\n    {row.command}"


if __name__ == "__main__":
    main()
