"""Puts bugs into a copy of Fairlead, one by one, and counts the simulated histories until each is found.

Without an argument all of them, as a table for docs/reliability.md; with one, those whose name contains it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MOST_SEEDS = 500


@dataclass(frozen=True)
class Mutant:
    """A bug: in this file, below src/fairlead, one text is replaced by another."""

    name: str
    file: str
    text: str
    instead: str

    def put_into(self, src: Path) -> None:
        """Replace the text in the sources below this folder, where it must be exactly once."""
        path = src / "fairlead" / self.file
        source = path.read_text(encoding="utf-8")
        if source.count(self.text) != 1:
            raise ValueError(f"{self.name}: {self.file} does not have its text exactly once")
        path.write_text(source.replace(self.text, self.instead), encoding="utf-8")


MUTANTS = (
    Mutant(
        "a decision is applied before it is in the log",
        "rounds/loop.py",
        "        journal.decision(decision)\n        state.fold(decision)\n        engine.apply(decision)\n",
        "        state.fold(decision)\n        engine.apply(decision)\n        journal.decision(decision)\n",
    ),
    Mutant(
        "commits are not synced to the disk",
        "service/store/database.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = NORMAL",
    ),
    Mutant(
        "the number of a lease that never started is used again",
        "rounds/holding.py",
        "state.leases[jobs] += 1",
        "state.leases[jobs] += ran | (state.leases[jobs] == 0)",
    ),
    Mutant(
        "no fence around checkpoints",
        "lease/checkpoints.py",
        "        if fence > self._number:",
        "        if fence > self._number + 100:",
    ),
    Mutant(
        "a cancellation that was taken is forgotten in a restart",
        "service/store/request_queue.py",
        '        if kind == "cancel":\n',
        '        if kind == "nothing":\n',
    ),
    Mutant(
        "a launch whose answer was lost is given up and made again",
        "engines/resuming.py",
        "    if unwanted and s.runner.revoke(lease.key):\n",
        "    if unwanted:\n        s.runner.revoke(lease.key)\n",
    ),
    Mutant(
        "an idempotency key is stored for another token",
        "service/store/changes.py",
        "            row = (key.token, key.key, key.digest, id_, time.time())\n",
        "            row = (id_, key.key, key.digest, id_, time.time())\n",
    ),
    Mutant(
        "requests count as taken before their events are written",
        "service/process/scheduler.py",
        "        self._woken_s = time.monotonic()\n",
        "        self._woken_s = time.monotonic()\n        self._log.commit(self._inbox.taken)\n",
    ),
    Mutant(
        "the time of the log follows the wall clock while jobs run",
        "engines/clock.py",
        "        if self._idle():",
        "        if self._idle() or True:",
    ),
    Mutant(
        "a restart does not record that the policy's memory is gone",
        "service/process/scheduler.py",
        "    begins: list[Event] = [PolicySet(time_s, name, parameters, log.instead_of)]\n",
        "    begins: list[Event] = []\n",
    ),
    Mutant(
        "GPUs of leases that still stop are given away",
        "engines/starting.py",
        "            self._taken = s.fleet.taken()\n",
        "            pass\n",
    ),
    Mutant(
        "a lease counts as revoked whatever the answer was",
        "engines/watching.py",
        "    if not s.runner.revoke(live.lease.key):\n        return",
        "    s.runner.revoke(live.lease.key)\n    if False:\n        return",
    ),
    Mutant(
        "a lease that is left out of a look counts as vanished",
        "engines/watching.py",
        "            case Condition.UNSEEN:\n                _see_nothing(s, live)",
        "            case Condition.UNSEEN:\n                _see_end(s, live, Sight(Condition.VANISHED))",
    ),
    Mutant(
        "a stop is not asked for again after a restart",
        "engines/resuming.py",
        "        live.asked_s = s.now_s\n        if sight.condition not in OVER:\n            s.fleet.ask(live, s.now_s)\n",
        "        pass\n",
    ),
    Mutant(
        "a snapshot lacks what was learnt",
        "rounds/snapshot.py",
        '"learnt": None if state.learner is None else state.learner.learnt(),',
        '"learnt": None,',
    ),
)


def seeds_until_found(mutant: Mutant, most: int = MOST_SEEDS) -> tuple[int | None, str]:
    """The number of histories until the bug is found, and the complaint; None if it is not."""
    folder = Path(tempfile.mkdtemp(prefix="fairlead-mutant-"))
    try:
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        mutant.put_into(folder / "src")
        command = [sys.executable, str(ROOT / "tests/simulation/simulate.py"), "--until-found", str(most)]
        environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{mutant.name}: {done.stderr[-2000:]}")
        number, _, complaint = done.stdout.strip().partition(" ")
        return (int(number), complaint) if done.returncode else (None, "")
    finally:
        shutil.rmtree(folder)


def main() -> int:
    chosen = [mutant for mutant in MUTANTS if len(sys.argv) < 2 or sys.argv[1] in mutant.name]
    print("| bug | found after | as |\n| --- | --- | --- |")
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        searches = {pool.submit(seeds_until_found, mutant): mutant for mutant in chosen}
        for search in as_completed(searches):
            mutant, (seeds, complaint) = searches[search], search.result()
            missed += seeds is None
            count = seeds or f"not in {MOST_SEEDS}"
            print(f"| {mutant.name} | {count} | {complaint.splitlines()[0][:120] if complaint else ''} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
