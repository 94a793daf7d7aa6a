"""The local engine as a world of the contract, where every lease is loaded into a process that runs already."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from engine_world import CLUSTER, STEPS, Does
from local_world import PAUSE, SOURCE, LocalWorld

from fairlead.engines.leases import Lease
from fairlead.engines.local.devices import slots_as_devices
from fairlead.engines.local.processes import claim_of
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.local.warm.pool import WarmLimits
from fairlead.engines.requests import Command
from fairlead.engines.runner import Runner
from waiting import PATIENCE_S, wait_for

SCRIPTS = {
    "end.py": "",
    "fail.py": "raise SystemExit(3)",
    "deaf.py": """
import signal, time
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    time.sleep(0.1)
""",
}
PROCESSES = 4


class PatientRunner(LocalRunner):
    """Waits for a standby before every launch."""

    def launch(self, lease: Lease) -> None:
        self.prepare(lease)
        possible = os.path.isdir(self._workdir(lease)) and self._beginning(lease) is not None
        if possible:
            wait_for(lambda: self._is_ready(lease), "a standby")
        super().launch(lease)
        assert not possible or claim_of(self.directory(lease.key)).get("warm")

    def _is_ready(self, lease: Lease) -> bool:
        wanted = self._beginning(lease)
        return any(standby.ready and standby.beginning == wanted for standby in self.warm.standbys)


class WarmWorld(LocalWorld):
    name = "warm"
    lacks: Mapping[str, str] = LocalWorld.lacks

    def __init__(self, root: Path) -> None:
        for name, text in SCRIPTS.items():
            (root / name).write_text(text)
        super().__init__(root)

    def _open(self) -> LocalRunner:
        devices = slots_as_devices(CLUSTER.nodes, CLUSTER.node_gpus.tolist())
        return PatientRunner(self.root / "state", devices, warm=WarmLimits(PROCESSES, pause_s=0.0))

    def again(self) -> Runner:
        self.runner.warm.close()  # as the end of a scheduler does
        return super().again()

    def command(self, does: Does, max_retries: int) -> Command:
        script = {
            Does.TRAIN: f"training.py {STEPS:g} {PAUSE} {self.root}/over",
            Does.END: "end.py",
            Does.FAIL: "fail.py",
            Does.DEAF: "deaf.py",
            Does.NOTHING_THERE: "end.py",
        }[does]
        workdir = self.root / "missing" if does is Does.NOTHING_THERE else self.root
        env = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        return Command(
            f"{sys.executable} {script}",
            workdir=str(workdir),
            env=env,
            grace_s=1.0 if does is Does.DEAF else PATIENCE_S,
            max_retries=max_retries,
            warm=("json", "fairlead.lease"),
        )

    def shims(self, id_: str) -> list[int]:
        """The keepers of its leases: the parents of their processes, as long as they run."""
        parents = [_parent(claim["group"]) for claim in self.claims(id_) if "warm" in claim]
        return [*super().shims(id_), *(pid for pid in parents if pid is not None)]

    def close(self) -> None:
        self.runner.warm.close()
        super().close()


def _parent(pid: int) -> int | None:
    with suppress(OSError):
        parent = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        if b"fairlead.engines.local.warm.keeper" in Path(f"/proc/{parent}/cmdline").read_bytes():
            return parent
    return None
