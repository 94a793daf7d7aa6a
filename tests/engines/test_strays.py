"""Processes of a lease that leave their session and their parents, as workers of torchrun do, are found and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from local_world import processes
from warm_world import PatientRunner

from fairlead.engines.leases import OVER, Condition, Gpu, Lease
from fairlead.engines.local import members, proc
from fairlead.engines.local.devices import slots_as_devices
from fairlead.engines.local.hierarchies import Hierarchies, find
from fairlead.engines.local.members import ROLL
from fairlead.engines.local.processes import claim_of
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.local.warm.pool import WarmLimits
from fairlead.engines.requests import Command
from waiting import wait_for

# Starts a daemon the old way, in a session of its own and without a parent, and then runs until it is killed.
PARENT = """
import os, signal, sys
rank, ways = os.environ.get("RANK", "0"), sys.argv[1:]
if "deaf" in ways:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if not child:
    os.setsid()
    if os.fork():
        os._exit(0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    with open("draft-" + rank, "w") as file:
        file.write(str(os.getpid()))
    os.rename("draft-" + rank, "stray-" + rank)
    os.execve("/bin/sleep", ["sleep", "infinity"], {} if "clear" in ways else os.environ)
os.waitpid(child, 0)
while True:
    signal.pause()
"""
GPUS = (Gpu("n-1", "v100", 0), Gpu("n-2", "k80", 0))
WORLDS = ["control groups", "no control groups", "warm, control groups", "warm, no control groups"]


class Gang:
    """A gang of two processes, each with a stray daemon."""

    def __init__(self, folder: Path, world: str, *ways: str) -> None:
        (folder / "parent.py").write_text(PARENT)
        hierarchies = Hierarchies() if "no control groups" in world else find()
        if "no control groups" not in world and hierarchies.tracking is None:
            pytest.skip(f"this machine has no control groups: {hierarchies.why_none}")
        kind = PatientRunner if "warm" in world else LocalRunner
        devices = slots_as_devices(["n-1", "n-2"], [1, 1])
        self.runner = kind(folder / "state", devices, warm=WarmLimits(2, pause_s=0.0), hierarchies=hierarchies)
        self.lease = Lease("gang", 1, GPUS, _command(folder, ways, warm="warm" in world))
        self.runner.launch(self.lease)
        self.runner.warm.close()
        wait_for(lambda: all((folder / f"stray-{rank}").exists() for rank in (0, 1)), "the daemons")
        self.strays = [int((folder / f"stray-{rank}").read_text()) for rank in (0, 1)]
        claim = claim_of(self.runner.directory(self.lease.key))
        self.supervisor, self.groups = claim["supervisor"], claim["cgroups"]
        self.parents = [pid for pid, _ in processes() if _cwd(pid) == folder and pid not in self.strays]
        if "clear" in ways and not self.groups:
            wait_for(self._is_on_roll, "an entry in the roll, which is all that shows a process without environment")

    def _is_on_roll(self) -> bool:
        roll = (self.runner.directory(self.lease.key) / ROLL).read_text()
        return all(any(line.startswith(f"{pid} ") for line in roll.splitlines()) for pid in self.strays)

    def condition(self) -> Condition:
        return self.runner.look([self.lease.key]).sights[self.lease.key].condition

    def end(self) -> Condition:
        """How the lease ended, once it is over; at that time nothing of it may live."""
        last = [self.condition()]

        def over() -> bool:
            last.append(self.condition())
            return last[-1] in OVER

        wait_for(over, "the end of a lease")
        assert not [pid for pid in (*self.strays, *self.parents) if lives(pid)]
        return last[-1]


def _command(folder: Path, ways: tuple[str, ...], *, warm: bool) -> Command:
    run = f"{sys.executable} parent.py {' '.join(ways)}"
    modules = ("json",) if warm else ()
    return Command(run, workdir=str(folder), grace_s=0.0, processes="per-node", warm=modules)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for pid, _ in processes():
        if _cwd(pid) == tmp_path:
            os.kill(pid, signal.SIGKILL)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _cwd(pid: int) -> Path | None:
    with suppress(OSError):
        return Path(os.readlink(f"/proc/{pid}/cwd"))
    return None


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("ways", [(), ("deaf", "clear")], ids=["plain", "without environment"])
def test_daemons_of_a_gang_end_with_it_when_its_supervisor_is_killed(
    folder: Path, world: str, ways: tuple[str, ...]
) -> None:
    gang = Gang(folder, world, *ways)

    os.kill(gang.supervisor, signal.SIGKILL)

    assert gang.end() is Condition.VANISHED
    assert not [path for path in gang.groups if os.path.exists(path)]


@pytest.mark.parametrize("world", WORLDS)
def test_daemons_of_a_gang_end_with_it_when_everything_else_of_it_is_killed(folder: Path, world: str) -> None:
    gang = Gang(folder, world)

    for pid in (gang.supervisor, *gang.parents):
        os.kill(pid, signal.SIGKILL)

    assert gang.end() is Condition.VANISHED


# Its first thread ends, which makes the process look dead, while another one works on.
HEADLESS = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
with open("draft-0", "w") as file:
    file.write(str(os.getpid()))
os.rename("draft-0", "stray-0")
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_of_which_only_threads_are_left_lives(folder: Path) -> None:
    (folder / "headless.py").write_text(HEADLESS)
    process = subprocess.Popen([sys.executable, "headless.py"], cwd=folder)
    try:
        wait_for(lambda: (folder / "stray-0").exists(), "a process")
        stat = Path(f"/proc/{process.pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "the end of its first thread")

        found = proc.read(process.pid)

        assert found is not None
        proc.kill(found)
        assert process.wait() == -signal.SIGKILL
        assert proc.read(process.pid) is None
    finally:
        process.kill()
        process.wait()


def test_a_number_that_another_process_has_by_now_is_not_hit(folder: Path) -> None:
    stranger = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        found = proc.read(stranger.pid)
        assert found is not None
        proc.kill(found._replace(born=found.born - 1))
        assert stranger.communicate(b"alive")[0] == b"alive"
    finally:
        stranger.kill()
        stranger.wait()


def test_a_rank_that_has_left_the_process_group_ends_with_the_gang(folder: Path) -> None:
    """The second rank ignores TERM in a session of its own when the first one fails."""
    script = "import os, signal, sys, time\nif os.environ['RANK'] == '0':\n    while not os.path.exists('left'):\n"
    script += "        time.sleep(0.05)\n    sys.exit(3)\nos.setsid()\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    (folder / "rank.py").write_text(script + "open('left', 'w').close()\nwhile True:\n    time.sleep(1)\n")
    runner = LocalRunner(folder / "state", slots_as_devices(["n-1", "n-2"], [1, 1]))
    command = Command(f"exec {sys.executable} rank.py", workdir=str(folder), processes="per-node")
    runner.launch(Lease("gang", 1, GPUS, command))

    wait_for(lambda: runner.look([("gang", 1)]).sights["gang", 1].condition in OVER, "the end of a gang")

    assert runner.look([("gang", 1)]).sights["gang", 1].code == 3


@pytest.mark.parametrize("world", WORLDS)
def test_kill_reaches_daemons_too(folder: Path, world: str) -> None:
    gang = Gang(folder, world, "deaf", "clear")

    gang.runner.kill(gang.lease)

    assert gang.end() is Condition.ENDED
    assert not [path for path in gang.groups if os.path.exists(path)]


# Begins a session, in which it leaves a process without a parent, and ends.
LEAVES_A_SESSION = """
import os
os.setsid()
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
nowhere = os.open(os.devnull, os.O_RDWR)
os.dup2(nowhere, 1)
os.execve("/bin/sleep", ["sleep", "infinity"], {})
"""


@pytest.fixture
def left_alone() -> Iterator[tuple[int, int]]:
    """A session whose first process is gone, and the process in it."""
    with subprocess.Popen([sys.executable, "-c", LEAVES_A_SESSION], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        child = int(first.stdout.readline())
    yield first.pid, child
    os.kill(child, signal.SIGKILL)


def claim_on(session: int, mark: str) -> dict[str, object]:
    """As of a lease whose supervisor and whose job had this number once."""
    born = {"born": 1, "supervisor_born": 1}
    return {"group": session, "supervisor": session, **born, "boot": proc.boot(), "mark": mark, "cgroups": []}


def test_a_session_that_got_the_number_of_an_earlier_supervisor_is_left_alone(
    left_alone: tuple[int, int], tmp_path: Path
) -> None:
    """While no service runs, everything of a lease may end, and its numbers may be given to strangers."""
    claim = claim_on(left_alone[0], "of a lease that is over")

    assert members.members(str(tmp_path), claim) == []
    assert members.group_of(str(tmp_path), claim) is None


def test_a_session_with_a_process_of_the_lease_is_searched_for_others(
    left_alone: tuple[int, int], tmp_path: Path
) -> None:
    session, child = left_alone
    process = proc.read(child)
    assert process is not None
    (tmp_path / ROLL).write_text(f"{child} {process.born}\n")

    assert [one.pid for one in members.members(str(tmp_path), claim_on(session, "a mark"))] == [child]
    assert members.group_of(str(tmp_path), claim_on(session, "a mark")) == session
