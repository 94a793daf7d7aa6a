"""Simulates histories of the service with faults, one for each seed, on all cores; `make simulate` calls it.

python tests/simulation/simulate.py --seeds 100000           # from 0 on; continues where it was interrupted
python tests/simulation/simulate.py --from 500 --seeds 100
python tests/simulation/simulate.py --seed 4711              # one history, with its last records if it fails
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest does

from simulated_history import check_history  # noqa: E402
from simulated_policy import registered  # noqa: E402
from simulated_service import Simulation  # noqa: E402

CHUNK = 50  # seeds that a process does at a time
LAST = 15  # records that are shown of a history that failed


@dataclass
class Outcome:
    """The result of some histories: how often each fault struck, and what went wrong by seed."""

    tally: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        self.tally.update(other.tally)
        self.failed.update(other.failed)


def simulate(seeds: Iterable[int]) -> Outcome:
    outcome = Outcome()
    for seed in seeds:
        folder = scratch()
        simulation = Simulation(seed, folder)
        try:
            run_history(simulation, folder)
        except Exception as error:
            outcome.failed[seed] = f"{type(error).__name__}: {str(error)[:300]}"
        finally:
            shutil.rmtree(folder)
        outcome.tally.update(simulation.tally)
    return outcome


def run_history(simulation: Simulation, folder: Path) -> None:
    """Raise if anything is not as it must be, during the history or after it."""
    with registered():
        simulation.run()
        check_history(simulation, folder)


def scratch() -> Path:
    """A new folder in memory, where the machine has one."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="fairlead-", dir=memory if os.access(memory, os.W_OK) else None))


def reproduction(seed: int) -> str:
    return f".venv/bin/python tests/simulation/simulate.py --seed {seed}"


def show(seed: int) -> int:
    """Run one history; if it fails, show why and the last records of its log."""
    folder = scratch()
    simulation = Simulation(seed, folder)
    try:
        run_history(simulation, folder)
    except Exception:
        traceback.print_exc()
        for line in simulation.last_records(LAST):
            print(line)
        return 1
    finally:
        shutil.rmtree(folder)
    print(f"seed {seed}: all is well after {simulation.now_s:.0f} s; {_table(simulation.tally)}")
    return 0


class Progress:
    """Chunks that are done, in a file, so that an interrupted run continues. Other code begins again."""

    def __init__(self, path: Path) -> None:
        self._path, self._code = path, _digest()
        stored = json.loads(path.read_text()) if path.exists() else {}
        self.done: dict[str, dict[str, Any]] = stored.get("done", {}) if stored.get("code") == self._code else {}

    def note(self, first: int, last: int, outcome: Outcome) -> None:
        self.done[f"{first}-{last}"] = {"tally": outcome.tally, "failed": outcome.failed}
        self._path.parent.mkdir(exist_ok=True)
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps({"code": self._code, "done": self.done}))
        draft.replace(self._path)

    def of(self, first: int, last: int) -> Outcome | None:
        row = self.done.get(f"{first}-{last}")
        if row is None:
            return None
        return Outcome(Counter(row["tally"]), {int(seed): why for seed, why in row["failed"].items()})


def run(first: int, count: int, processes: int, progress: Progress) -> Outcome:
    total, done = Outcome(), 0
    chunks = [(low, min(low + CHUNK, first + count)) for low in range(first, first + count, CHUNK)]
    with ProcessPoolExecutor(processes) as pool:
        waiting = {}
        for low, high in chunks:
            before = progress.of(low, high)
            if before is None:
                waiting[pool.submit(simulate, range(low, high))] = (low, high)
            else:
                total.add(before)
                done += high - low
        for future in as_completed(waiting):
            outcome, (low, high) = future.result(), waiting[future]
            progress.note(low, high, outcome)
            total.add(outcome)
            done += high - low
            for seed, why in outcome.failed.items():
                print(f"seed {seed}: {why}\n    {reproduction(seed)}", flush=True)
            print(f"{done} of {count} seeds, {len(total.failed)} failed", file=sys.stderr, flush=True)
    return total


def until_found(most: int) -> int:
    """Print the number of histories until one fails, and why; nothing if none of them does."""
    for seed in range(most):
        failed = simulate([seed]).failed
        if failed:
            print(seed + 1, failed[seed])
            return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate the service with faults.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many histories")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--seed", type=int, help="one history only")
    parser.add_argument("--until-found", type=int, help="histories until one fails, for mutants.py")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.seed is not None:
        return show(options.seed)
    if options.until_found is not None:
        return until_found(options.until_found)
    total = run(options.first, options.seeds, options.processes, Progress(ROOT / "build" / "simulation.json"))
    print(_table(total.tally))
    for seed, why in sorted(total.failed.items()):
        print(f"seed {seed}: {why}\n    {reproduction(seed)}")
    print(f"{options.seeds} histories, {len(total.failed)} failed")
    return 1 if total.failed else 0


def _table(tally: Counter[str]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(tally.items()))


def _digest() -> str:
    hasher = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *HERE.glob("*.py")]):
        hasher.update(path.read_bytes())
    return hasher.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
