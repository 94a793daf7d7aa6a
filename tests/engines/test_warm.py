"""Warm starts: a job cannot tell that its process ran before it, and whatever is wrong with a standby, the job starts."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_world import SOURCE

from fairlead.engines.leases import OVER, Gpu, Lease, Sight
from fairlead.engines.local import shim
from fairlead.engines.local.accounts import parse_accounts
from fairlead.engines.local.devices import slots_as_devices
from fairlead.engines.local.processes import claim_of
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.local.warm.pool import Standby, WarmLimits
from fairlead.engines.requests import Command
from waiting import wait_for

DEVICES = slots_as_devices(["n-1", "n-2"], [2, 2])
GPU, OTHER = Gpu("n-1", "v100", 1), Gpu("n-2", "k80", 0)
LIMITS = WarmLimits(pause_s=0.0)
LOOK = """
import json, os, signal, sys, helper
names = [n for n in ("SIGTERM", "SIGUSR1", "SIGINT", "SIGHUP", "SIGPIPE", "SIGCHLD")]
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags), "executable": sys.executable,
    "file": globals().get("__file__"), "package": __package__, "spec": __spec__ and __spec__.name, "names": sorted(globals()),
    "main": sys.modules["__main__"].__dict__ is globals(), "cwd": os.getcwd(), "env": dict(os.environ),
    "files": [os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)], "open": len(os.listdir("/proc/self/fd")),
    "signals": [str(signal.getsignal(getattr(signal, n))) for n in names], "blocked": status["SigBlk"],
    "limits": open("/proc/self/limits").read(), "nice": os.nice(0), "umask": os.umask(0o077), "ids": status["Uid"] + status["Gid"],
    "terminal": os.isatty(0) or os.isatty(1), "buffering": [sys.stdout.write_through, sys.stdout.encoding, sys.stdout.errors],
    "leads_session": os.getsid(0) == os.getpid(), "same_session": os.getsid(os.getpgrp()) == os.getsid(0),
}))
"""


class Machine:
    def __init__(self, folder: Path, limits: WarmLimits = LIMITS, user: str | None = None) -> None:
        self.folder = folder
        self.runner = LocalRunner(
            folder / "state", DEVICES, accounts=parse_accounts([user] if user else []), warm=limits
        )
        self._launched: list[Lease] = []

    def lease(self, run: str, *, gpus: tuple[Gpu, ...] = (GPU,), tenant: str = "t", **more: Any) -> Lease:
        """A lease of `python RUN` in the folder."""
        terms = {"workdir": str(self.folder), "warm": ("json", "helper"), **more}
        number = len(self._launched) + 1
        return Lease("job-a", number, gpus, Command(f"{sys.executable} {run}", **terms), tenant=tenant)

    def launch(self, lease: Lease, *, warm: bool) -> Lease:
        """Launch it, and check that it is a warm start or not; a warm one waits for its standby."""
        lease = replace(lease, number=len(self._launched) + 1)
        if warm:
            self.standby(lease)
        else:
            self.runner.warm.close()
        self._launched.append(lease)
        self.runner.launch(lease)
        assert self.is_warm(lease) is warm
        return lease

    def is_warm(self, lease: Lease) -> bool:
        wait_for((self.runner.directory(lease.key) / shim.CLAIM).exists, "the claim")
        return bool(claim_of(self.runner.directory(lease.key)).get("warm"))

    def standby(self, lease: Lease) -> Standby:
        """A standby for this lease, once it is ready."""
        self.runner.prepare(lease)
        wait_for(lambda: self.ready, "a standby")
        return self.ready[-1]

    @property
    def ready(self) -> list[Standby]:
        return [standby for standby in self.runner.warm.standbys if standby.ready]

    def run(self, lease: Lease, *, warm: bool) -> tuple[int | None, str]:
        """Its exit code and its log."""
        lease = self.launch(lease, warm=warm)
        return self.end(lease).code, self.log(lease)

    def end(self, lease: Lease) -> Sight:
        wait_for(lambda: self.sight(lease).condition in OVER, "the end of a lease")
        return self.sight(lease)

    def sight(self, lease: Lease) -> Sight:
        return self.runner.look([lease.key]).sights[lease.key]

    def log(self, lease: Lease) -> str:
        path = self.runner.directory(lease.key) / shim.LOG
        return path.read_text() if path.exists() else ""

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def close(self) -> None:
        pids = [pid for standby in self.runner.warm.standbys for pid in standby.pids]
        self.runner.warm.close()
        for lease in self._launched:
            self.runner.kill(lease)
            self.end(lease)
        wait_for(lambda: not any(map(is_alive, pids)), "the end of the standbys")


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    made.write("helper.py", "state = []\n")
    yield made
    made.close()


# ---- a job cannot tell -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["look.py a 'b c'", "-u -W ignore sub/look.py", "-m sub.look x", "-I look.py"])
def test_a_warm_job_sees_what_a_cold_one_sees(machine: Machine, run: str) -> None:
    look = LOOK.replace(", helper", "") if "-I" in run else LOOK
    machine.write("look.py", look)
    machine.write("sub/look.py", look.replace(", helper", ""))
    lease = machine.lease(run, env={"SEED": "1"})

    (_, cold), (_, warm) = (machine.run(lease, warm=warm) for warm in (False, True))

    seen, also = json.loads(cold.replace("/1/", "/2/")), json.loads(warm)
    assert seen["env"].pop("FAIRLEAD_MARK") != also["env"].pop("FAIRLEAD_MARK")  # each lease has its own
    assert {name: value for name, value in also.items() if value != seen[name]} == {}


@pytest.mark.parametrize(
    "script",
    [
        "raise SystemExit(7)",
        "raise SystemExit('a message')",
        "import sys; sys.exit()",
        "def f():\n    raise ValueError('x')\nf()",
        "raise KeyboardInterrupt",
        "import os; os.kill(os.getpid(), 9)",
        "import os; os._exit(85)",
        "syntax error",
        "import atexit; atexit.register(print, 'last'); import threading; threading.Thread(target=print, args=('t',)).start()",
        "import pickle\nclass X: pass\nprint(type(pickle.loads(pickle.dumps(X()))), __name__)",
    ],
)
def test_a_warm_job_ends_as_a_cold_one(machine: Machine, script: str) -> None:
    machine.write("train.py", script)

    lease = machine.lease("train.py")
    lease = replace(
        lease, command=replace(lease.command, run=f"exec {lease.command.run}")
    )  # a shell comments on signals

    cold, warm = (machine.run(lease, warm=warm) for warm in (False, True))

    assert warm == cold


def test_a_script_that_is_missing_fails_in_both(machine: Machine) -> None:
    codes = [machine.run(machine.lease("missing.py"), warm=warm)[0] for warm in (False, True)]

    assert all(codes)


def test_setup_runs_first_in_a_shell_and_its_error_ends_the_job(machine: Machine) -> None:
    machine.write("train.py", "print(open('made').read())")
    good = machine.lease("train.py", setup="printf $FAIRLEAD_JOB > made; echo set up")
    bad = machine.lease("train.py", setup="false; echo never")

    assert machine.run(good, warm=True) == machine.run(good, warm=False) == (0, "set up\njob-a\n")
    assert machine.run(bad, warm=True) == machine.run(bad, warm=False) == (1, "")


def test_a_job_that_is_asked_to_stop_while_it_is_set_up_goes_on_as_with_a_shell(machine: Machine) -> None:
    machine.write("train.py", "print('trained')")
    machine.write("setup.sh", "trap 'echo asked; exit 0' TERM\necho up\nwhile true; do sleep 0.05; done")
    for warm in (False, True):
        lease = machine.launch(machine.lease("train.py", setup="sh setup.sh"), warm=warm)
        wait_for(lambda lease=lease: "up" in machine.log(lease), "the setup")  # type: ignore[misc]
        machine.runner.ask_to_stop(lease)
        assert machine.end(lease).code == 0
        said = [line for line in machine.log(lease).splitlines() if line != "Terminated"]  # of `sleep`, by its shell
        assert said == ["up", "asked", "trained"]


def test_what_imports_print_is_in_the_log_of_the_job(machine: Machine) -> None:
    machine.write("helper.py", "print('imported')")
    machine.write("train.py", "import helper\nprint('trained')")

    assert machine.run(machine.lease("train.py"), warm=True) == (0, "imported\ntrained\n")


def test_nothing_of_one_job_is_left_for_the_next(machine: Machine) -> None:
    machine.write(
        "train.py",
        "import helper, os, random\nprint(helper.state, os.environ.get('LEFT'), random.random())\n"
        "helper.state.append('secret'); os.environ['LEFT'] = 'secret'",
    )
    lease = machine.lease("train.py", warm=("helper", "random"))

    logs = [machine.run(lease, warm=True)[1] for _ in range(2)]

    assert [log.split()[:2] for log in logs] == [["[]", "None"]] * 2
    assert logs[0] != logs[1]  # not even the state of random numbers


def test_the_processes_of_a_gang_start_warm_together(machine: Machine) -> None:
    machine.write(
        "train.py",
        "import os\nprint(*(os.environ[n] for n in ('RANK', 'WORLD_SIZE', 'CUDA_VISIBLE_DEVICES')), os.getpgrp())",
    )
    lease = machine.lease("train.py", gpus=(GPU, OTHER), processes="per-node")

    code, log = machine.run(lease, warm=True)

    lines = sorted(line.split() for line in log.splitlines())
    assert code == 0
    assert [line[:3] for line in lines] == [["0", "2", "1"], ["1", "2", "2"]]
    assert lines[0][3] == lines[1][3]


# ---- whom a standby serves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "another"},
        {"env": {"TOKEN": "sesame", "SEED": "2"}},
        {"env": {}},
        {"warm": ("json",)},
        {"workdir": "/"},
        {"run": "-u train.py"},
        {"run": "sub/train.py"},
    ],
)
def test_a_standby_serves_only_jobs_that_begin_like_it(machine: Machine, change: dict[str, Any]) -> None:
    machine.write("train.py", "")
    machine.write("sub/train.py", "")
    terms: dict[str, Any] = {"run": "train.py", "env": {"TOKEN": "sesame"}}
    machine.standby(machine.lease(**terms))
    other = machine.lease(**{**terms, **change})

    machine.runner.launch(other)
    machine._launched.append(other)

    assert not machine.is_warm(other)


def test_a_standby_serves_another_script_of_the_same_folder_on_any_gpu(machine: Machine) -> None:
    machine.write("train.py", "")
    machine.write("test.py", "print('tested')")
    machine.standby(machine.lease("train.py 1"))
    other = machine.lease("test.py 2", gpus=(OTHER,))

    machine.runner.launch(other)
    machine._launched.append(other)

    assert machine.is_warm(other)
    assert (machine.end(other).code, machine.log(other)) == (0, "tested\n")


def test_no_secret_is_on_a_command_line(machine: Machine) -> None:
    standby = machine.standby(machine.lease("train.py", env={"TOKEN": "sesame"}))
    [pid] = standby.pids
    keeper = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]

    assert not [p for p in (pid, keeper) if b"sesame" in Path(f"/proc/{p}/cmdline").read_bytes()]
    assert b"sesame" in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_job_that_does_not_ask_for_it_gets_no_standby(machine: Machine) -> None:
    machine.write("train.py", "")
    changes: list[dict[str, Any]] = [{"warm": ()}, {"run": "train.py; true"}]
    for terms in changes:
        machine.launch(machine.lease(**{"run": "train.py", **terms}), warm=False)

    assert machine.runner.warm.standbys == []


# ---- limits ------------------------------------------------------------------------------------------------------------


def test_standbys_are_kept_for_the_last_leases_and_no_more_than_the_limit(machine: Machine) -> None:
    def waiting() -> list[str]:
        return sorted(standby.beginning.tenant for standby in machine.runner.warm.standbys)

    for tenant, expected in (("a", ["a"]), ("a", ["a", "a"]), ("b", ["a", "b"]), ("c", ["b", "c"])):
        machine.runner.prepare(machine.lease("train.py", tenant=tenant))
        assert waiting() == expected
    machine.runner.prepare(machine.lease("train.py", gpus=(GPU, OTHER), processes="per-node", tenant="gang"))
    assert waiting() == ["gang"]  # of two processes
    machine.runner.prepare(machine.lease("train.py", gpus=(GPU, OTHER, GPU), processes="per-gpu", tenant="too wide"))
    assert waiting() == []


def test_an_operator_sees_standbys_their_memory_and_how_leases_began(machine: Machine) -> None:
    machine.write("train.py", "")
    assert machine.runner.warm_figures()["standbys"] == 0
    lease = machine.lease("train.py")
    machine.run(lease, warm=False)
    machine.run(lease, warm=True)
    machine.standby(lease)
    wait_for(lambda: len(machine.ready) == 2, "two standbys")

    figures = machine.runner.warm_figures()

    assert 0 < figures.pop("resident_mib") < 1024
    assert figures == {
        "standbys": 2,
        "standbys_ready": 2,
        "standbys_limit": 2,
        "resident_limit_mib": 4096,
        "warm_starts": 1,
        "cold_starts": 1,
    }


def test_without_standbys_every_start_is_cold(tmp_path: Path) -> None:
    machine = Machine(tmp_path, WarmLimits(processes=0))
    machine.write("train.py", "")
    try:
        assert machine.run(machine.lease("train.py"), warm=False) == (0, "")
        assert machine.runner.warm.standbys == []
    finally:
        machine.close()


@pytest.mark.parametrize("when", ["while it imports", "while it waits"])
def test_a_standby_that_grows_ends(tmp_path: Path, when: str) -> None:
    machine = Machine(tmp_path, WarmLimits(1, memory_gib=0.2, pause_s=0.0))
    grow = "held = bytearray(300 << 20)"
    later = f"import threading\ndef grow():\n    global held\n    import os\n    while not os.path.exists('go'): pass\n    {grow}\nthreading.Thread(target=grow, daemon=True).start()"
    machine.write("helper.py", f"{grow}\nimport time; time.sleep(3600)" if when == "while it imports" else later)
    machine.write("train.py", "print('trained')")
    try:
        machine.runner.prepare(machine.lease("train.py"))
        if when == "while it waits":
            wait_for(lambda: machine.ready, "the standby")
            machine.write("go", "")
        wait_for(lambda: not machine.runner.warm.standbys, "the end of the standby")
        assert machine.run(machine.lease("train.py", warm=("json",)), warm=False) == (0, "trained\n")
    finally:
        machine.close()


# ---- whatever is wrong with a standby, the job starts ------------------------------------------------------------------


@pytest.mark.parametrize(
    "helper", ["import time; time.sleep(3600)", "raise ValueError", "raise SystemExit", "import os; os._exit(0)"]
)
def test_a_standby_that_hangs_or_dies_means_a_cold_start(machine: Machine, helper: str) -> None:
    machine.write("helper.py", helper)
    machine.write("train.py", "print('trained')")
    machine.runner.prepare(machine.lease("train.py"))
    if "sleep" not in helper:
        wait_for(lambda: not machine.runner.warm.standbys, "the end of the standby")
    lease = machine.lease("train.py")

    machine.runner.launch(lease)
    machine._launched.append(lease)

    assert not machine.is_warm(lease)
    assert (machine.end(lease).code, machine.log(lease)) == (0, "trained\n")


@pytest.mark.parametrize("victim", ["process", "keeper", "frozen"])
def test_a_standby_that_dies_or_freezes_while_it_waits_means_a_cold_start(machine: Machine, victim: str) -> None:
    machine.write("train.py", "print('trained')")
    [pid] = machine.standby(machine.lease("train.py")).pids
    keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper if victim == "keeper" else pid, signal.SIGSTOP if victim == "frozen" else signal.SIGKILL)
    lease = machine.lease("train.py")

    machine.runner.launch(lease)
    machine._launched.append(lease)

    assert not machine.is_warm(lease)
    assert (machine.end(lease).code, machine.log(lease)) == (0, "trained\n")
    wait_for(lambda: not is_alive(pid), "the end of its process")


def test_code_that_has_changed_since_it_was_imported_is_never_run(machine: Machine) -> None:
    machine.write("train.py", "import helper\nprint(helper.state)")
    machine.standby(machine.lease("train.py"))
    machine.write("helper.py", "state = 'new'\n")
    lease = machine.lease("train.py")

    machine.runner.launch(lease)
    machine._launched.append(lease)

    assert not machine.is_warm(lease)
    assert (machine.end(lease).code, machine.log(lease)) == (0, "new\n")


def test_a_module_that_does_not_exist_is_left_to_the_job(machine: Machine) -> None:
    machine.write("train.py", "import nonsense")

    code, log = machine.run(machine.lease("train.py", warm=("nonsense", "json")), warm=True)

    assert code == 1
    assert "No module named 'nonsense'" in log


def test_an_environment_that_is_too_large_means_a_cold_start(machine: Machine) -> None:
    machine.write("train.py", "import os; print(len(os.environ['BIG']))")
    lease = machine.lease("train.py", env={"BIG": "x" * 100_000, "ALSO": "y" * 100_000, "MORE": "z" * 100_000})
    machine.runner.prepare(lease)
    wait_for(lambda: not machine.runner.warm.standbys, "no standby")

    assert machine.run(lease, warm=False) == (0, "100000\n")


# ---- when the scheduler ends -------------------------------------------------------------------------------------------

SCHEDULER = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from test_warm import Machine
machine = Machine(Path(sys.argv[1]))
machine.write("train.py", "import time\\nprint('begun', flush=True)\\nwhile True: time.sleep(0.1)")
lease = machine.launch(machine.lease("train.py"), warm=True)
machine.runner.prepare(machine.lease("train.py"))
machine.write("slow/helper.py", "import os; open('pid', 'w').write(str(os.getpid()))\\nimport time; time.sleep(3600)")
machine.write("slow/train.py", "")
machine.runner.prepare(machine.lease("slow/train.py"))
print(*machine.standby(machine.lease("train.py")).pids, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_standbys_end_with_the_scheduler_and_leases_do_not(tmp_path: Path, how: str) -> None:
    """Also a standby that hangs in an import."""
    (tmp_path / "helper.py").write_text("")
    paths = [str(SOURCE), str(SOURCE.parent / "tests"), str(Path(__file__).parent)]
    scheduler = subprocess.Popen(
        [sys.executable, "-c", SCHEDULER.format(paths=paths), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    machine = Machine(tmp_path)
    try:
        assert scheduler.stdout is not None
        pids = [int(pid) for pid in scheduler.stdout.readline().split()]
        wait_for((tmp_path / "pid").exists, "the standby that hangs")
        wait_for(lambda: (tmp_path / "pid").read_text(), "its number")
        pids.append(int((tmp_path / "pid").read_text()))
        assert all(map(is_alive, pids))
        if how == "killed":
            scheduler.kill()
        scheduler.communicate()

        wait_for(lambda: not any(map(is_alive, pids)), "the end of the standbys")
        lease = machine.runner.recall(("job-a", 1))
        assert lease is not None
        machine._launched.append(lease)
        wait_for(lambda: "begun" in machine.log(lease), "the job")
        machine.runner.ask_to_stop(lease)
        ended = machine.end(lease)
        assert (ended.code, ended.asked) == (128 + signal.SIGTERM, True)
    finally:
        scheduler.kill()
        scheduler.communicate()
        machine.close()


# ---- users and GPUs ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
def test_a_standby_is_a_process_of_the_jobs_user(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        machine = Machine(Path(folder), user="nobody")
        machine.write("helper.py", "import os; who = os.getuid()")
        machine.write(
            "train.py", "import os, helper; print(helper.who, os.getuid(), os.getgroups(), os.environ['HOME'])"
        )
        for path in ("helper.py", "train.py"):
            os.chmod(Path(folder) / path, 0o644)
        python = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
        lease = machine.lease("train.py")
        lease = replace(lease, command=replace(lease.command, run=f"{python} train.py"))
        try:
            if not _can_import(python, nobody):
                pytest.skip("user nobody cannot read this checkout")
            seen = f"{nobody.pw_uid} {nobody.pw_uid} [{nobody.pw_gid}] {nobody.pw_dir}\n"
            assert machine.run(lease, warm=True) == (0, seen)
        finally:
            machine.close()


def _can_import(python: str, user: pwd.struct_passwd) -> bool:
    source = SOURCE / "fairlead/engines/local/warm/loader.py"
    words = [python, "-c", f"open({str(source)!r})"]
    return not subprocess.run(
        words, user=user.pw_uid, group=user.pw_gid, extra_groups=[], capture_output=True
    ).returncode


TORCH = """
import os
opened = []
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")))
def empty(size, device):
    opened.append(device)
"""


def test_contexts_are_open_on_the_gpus_of_the_lease(tmp_path: Path) -> None:
    """Tried with a stand-in for torch: there is no GPU in our tests."""
    machine = Machine(tmp_path, WarmLimits(contexts=True, pause_s=0.0))
    machine.write("torch.py", TORCH)
    machine.write("train.py", "import os, torch; print(os.environ['CUDA_VISIBLE_DEVICES'], torch.opened)")
    try:
        lease = machine.lease("train.py", warm=("torch",), gpus=(GPU, OTHER))
        assert machine.run(lease, warm=True) == (0, "1,2 ['cuda:0', 'cuda:1']\n")
        elsewhere = machine.lease("train.py", warm=("torch",), gpus=(OTHER,))
        machine.runner.launch(elsewhere)
        machine._launched.append(elsewhere)
        assert not machine.is_warm(elsewhere)
    finally:
        machine.close()


def test_no_process_of_a_gang_opens_contexts_on_the_gpus_of_another_node(tmp_path: Path) -> None:
    """A context stays where it was opened, whatever the process is allowed to see later."""
    machine = Machine(tmp_path, WarmLimits(contexts=True, pause_s=0.0))
    machine.write("train.py", "")
    try:
        gang = machine.lease("train.py", warm=("json",), gpus=(GPU, OTHER), processes="per-node")
        machine.runner.prepare(gang)
        assert not machine.runner.warm.standbys
    finally:
        machine.close()
