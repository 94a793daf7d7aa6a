"""The standbys of this machine, in the scheduler's process: which there are, and which lease fits which.

A standby fits a lease if a start by the shim would begin in the same way: the same tenant and user, interpreter, module
list, directory and environment, up to the variables of the lease itself. After each lease that wanted a warm start, one
standby is kept for each of the last such leases, as many as the limits allow; the lease that comes next is probably
like one of them.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from fairlead.engines.local import cgroups
from fairlead.engines.local.programs import program
from fairlead.engines.local.warm import keeper
from fairlead.engines.local.warm.beginning import Beginning
from fairlead.engines.local.warm.keeper import LOADED, REFUSED
from fairlead.engines.local.warm.loader import LARGEST

_ANSWER_S = 10.0  # in which a keeper must answer; it runs only code of ours


@dataclass(frozen=True, slots=True)
class WarmLimits:
    """How many processes wait, how large all of them together may become, and whether they open CUDA contexts."""

    processes: int = 2
    memory_gib: float = 4.0
    contexts: bool = False
    pause_s: float = 1.0  # before the imports, so that they do not delay the first step of the job that just began

    @property
    def bytes_each(self) -> int:
        return int(self.memory_gib * 2**30 / max(self.processes, 1))


class Standby:
    """A standby that waits, or still imports."""

    def __init__(self, beginning: Beginning, limits: WarmLimits, groups: cgroups.Groups) -> None:
        self.beginning = beginning
        self._groups = groups
        self.ready = self.over = False
        self.resident_bytes = 0
        self.pids: tuple[int, ...] = ()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = program(keeper.__name__, str(theirs.fileno()))
        with theirs:
            self._starter = subprocess.Popen(
                command, env={}, cwd="/", stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        order = {**asdict(beginning), "env": dict(beginning.env), "cgroups": groups}
        self._send({**order, **_terms(limits, beginning.ranks)})

    def notice(self) -> None:
        """Take in what its keeper has sent so far."""
        self._starter.poll()
        while not self.over and select.select([self._control], (), (), 0)[0]:
            self._take(self._receive())

    def load(self, directory: Path) -> bool:
        """Whether the standby has claimed the lease in this directory. It is used up in any case."""
        self._groups = {}  # those of the lease from now on, even if the answer is lost
        with suppress(OSError):
            self._control.settimeout(_ANSWER_S)
            self._control.send(os.fsencode(directory))
            return self._control.recv(LARGEST) == LOADED
        return False

    def close(self) -> None:
        """Its keeper ends it, unless it has a lease."""
        self.over = True
        self._control.close()
        self._starter.wait()
        cgroups.kill(self._groups)  # in case that its keeper was killed
        cgroups.remove(self._groups)

    def _send(self, order: dict[str, object]) -> None:
        try:
            self._control.send(json.dumps(order).encode())
        except OSError:  # such as an environment that is too large for a message
            self.over = True

    def _receive(self) -> bytes:
        with suppress(OSError):
            return self._control.recv(LARGEST)
        return b""

    def _take(self, message: bytes) -> None:
        if not message or message.startswith(REFUSED):
            self.over = True
        else:
            news = json.loads(message)
            self.ready, self.pids, self.resident_bytes = True, tuple(news["pids"]), news["bytes"]


def _terms(limits: WarmLimits, ranks: int) -> dict[str, object]:
    return {"most_bytes": limits.bytes_each * ranks, "contexts": limits.contexts, "pause_s": limits.pause_s}


class WarmPool:
    """Loads leases into standbys and keeps standbys for the leases that come next."""

    def __init__(self, limits: WarmLimits, groups_of: Callable[[Beginning], cgroups.Groups]) -> None:
        self.limits = limits
        self._groups_of = groups_of  # new control groups for a standby
        self.loaded = self.missed = 0  # leases that wanted a warm start
        self._standbys: list[Standby] = []
        self._recent: deque[Beginning] = deque()

    @property
    def standbys(self) -> list[Standby]:
        """Those that are not over, the oldest first."""
        for standby in self._standbys:
            standby.notice()
        for standby in [standby for standby in self._standbys if standby.over]:
            self._drop(standby)
        return list(self._standbys)

    def load(self, beginning: Beginning, directory: Path) -> bool:
        """Whether a standby has claimed the lease in this directory; if not, nothing of it has begun."""
        for standby in self.standbys:
            if standby.ready and standby.beginning == beginning:
                loaded = standby.load(directory)
                self._drop(standby)
                if loaded:
                    self.loaded += 1
                    return True
        self.missed += 1
        return False

    def keep_for(self, beginning: Beginning) -> None:
        """Keep standbys for the last leases, of which one like this has just begun."""
        self._recent.append(beginning)
        while sum(one.ranks for one in self._recent) > self.limits.processes:
            self._recent.popleft()
        wanted = list(self._recent)
        for standby in self.standbys:
            if standby.beginning in wanted:
                wanted.remove(standby.beginning)
            else:
                self._drop(standby)
        for one in wanted:
            with suppress(OSError):  # no process or descriptor left: the next start is cold
                self._standbys.append(Standby(one, self.limits, self._groups_of(one)))

    def figures(self) -> dict[str, int]:
        """For operators: processes and MiB with their limits, and leases that wanted a warm start and got one or not."""
        standbys = self.standbys
        return {
            "standbys": sum(standby.beginning.ranks for standby in standbys),
            "standbys_ready": sum(standby.beginning.ranks for standby in standbys if standby.ready),
            "standbys_limit": self.limits.processes,
            "resident_mib": sum(standby.resident_bytes for standby in standbys) >> 20,
            "resident_limit_mib": int(self.limits.memory_gib * 1024),
            "warm_starts": self.loaded,
            "cold_starts": self.missed,
        }

    def close(self) -> None:
        for standby in list(self._standbys):
            self._drop(standby)

    def _drop(self, standby: Standby) -> None:
        standby.close()
        self._standbys.remove(standby)
