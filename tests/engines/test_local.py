"""The local runner: what a job sees, what it cannot do, and whom it runs as."""

from __future__ import annotations

import json
import os
import pwd
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from local_world import processes, shims

from fairlead.engines.leases import Condition, Gpu, Key, Lease, Sight
from fairlead.engines.local import proc, shim
from fairlead.engines.local.accounts import parse_accounts
from fairlead.engines.local.devices import slots_as_devices
from fairlead.engines.local.programs import program
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.requests import Command
from fairlead.engines.runner import LaunchError
from fairlead.model.errors import InputError
from waiting import until_told, wait_for

SOURCE = Path(__file__).resolve().parents[2] / "src"
DEVICES = slots_as_devices(["n-1", "n-2"], [2, 2])
GPUS = (Gpu("n-1", "v100", 1, 2), Gpu("n-2", "k80", 0, 1))


class Running:
    def __init__(self, runner: LocalRunner) -> None:
        self.runner = runner
        self.keys: list[Key] = []

    def launch(self, run: str, number: int = 1, **more: object) -> Key:
        command = Command(run, **{"workdir": str(self.runner.root.parent), **more})  # type: ignore[arg-type]
        lease = Lease("job-a", number, GPUS, command)
        self.keys.append(lease.key)
        self.runner.launch(lease)
        return lease.key

    def sight(self, key: Key) -> Sight:
        return self.runner.look([key]).sights[key]

    def end(self, key: Key) -> Sight:
        wait_for(lambda: self.sight(key).condition in (Condition.ENDED, Condition.VANISHED), "the end of a lease")
        return self.sight(key)

    def claimed(self, key: Key) -> None:
        wait_for(lambda: self.sight(key).condition is not Condition.NEVER_CLAIMED, "the claim of a lease")

    def log(self, key: Key) -> str:
        path = self.runner.directory(key) / shim.LOG
        return path.read_text() if path.exists() else ""

    def lease(self, key: Key) -> Lease:
        found = self.runner.recall(key)
        assert found is not None
        return found

    def close(self) -> None:
        for key in self.keys:
            with suppress(AssertionError, LaunchError):
                if self.runner.recall(key) is not None:
                    self.runner.kill(self.lease(key))
                    self.end(key)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(LocalRunner(tmp_path / "state", DEVICES))
    yield made
    made.close()


# ---- what a job sees ---------------------------------------------------------------------------------------------------


def test_a_job_sees_its_own_environment_and_nothing_of_the_daemons(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_TOKEN", "sesame")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")
    key = running.launch("env", env={"SEED": "1", "FAIRLEAD_LEASE": "elsewhere", "CUDA_VISIBLE_DEVICES": "7"})
    running.end(key)

    seen = dict(line.split("=", 1) for line in running.log(key).splitlines() if "=" in line)

    assert "sesame" not in running.log(key)
    assert seen["SEED"] == "1"
    assert seen["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert seen["FAIRLEAD_LEASE"] == str(running.runner.directory(key) / "lease.json")
    assert set(seen) - {"PWD", "SHLVL", "_", "OLDPWD"} <= {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
        *("PYTHONUNBUFFERED", "SEED", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
        *(
            "FAIRLEAD_LEASE",
            "FAIRLEAD_REPORT",
            "FAIRLEAD_REPORT_EVERY",
            "FAIRLEAD_STOP",
            "FAIRLEAD_JOB",
            "FAIRLEAD_GPUS",
            "FAIRLEAD_MARK",
        ),
    }


def test_a_lease_reads_back_as_it_was_launched(running: Running) -> None:
    key = running.launch("true", setup="true", env={"A": "b"}, checkpoint_dir="here", grace_s=3.0, max_retries=2)
    running.end(key)

    lease = running.lease(key)

    assert lease.gpus == GPUS
    assert lease.command == Command("true", "true", str(running.runner.root.parent), {"A": "b"}, "here", 3.0, 2)
    assert running.runner.recall(("job-a", 2)) is None


def test_nobody_else_can_look_into_a_lease(running: Running) -> None:
    key = running.launch("true")
    running.end(key)

    for path in (running.runner.root, running.runner.directory(key), running.runner.directory(key) / "lease.json"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_an_emulation_says_so(tmp_path: Path) -> None:
    emulated = Running(LocalRunner(tmp_path / "state", DEVICES, pace={"v100": 1.0, "k80": 0.25}))
    key = emulated.launch("echo emulated=$FAIRLEAD_EMULATED")
    emulated.end(key)

    found = json.loads((emulated.runner.directory(key) / "lease.json").read_text())

    assert emulated.log(key) == "emulated=1\n"
    assert (found["emulated"], found["pace"]) == (True, [1.0, 0.25])


def test_an_emulated_node_may_be_slower_than_its_type(tmp_path: Path) -> None:
    pace = {"v100": 1.0, "k80": 0.25}
    emulated = Running(LocalRunner(tmp_path / "state", DEVICES, pace=pace, node_pace={"n-2": 0.5}))
    key = emulated.launch("true")
    emulated.end(key)

    assert json.loads((emulated.runner.directory(key) / "lease.json").read_text())["pace"] == [1.0, 0.125]


# ---- how it ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setup", "run", "code", "said"),
    [
        (None, "echo hi; exit 7", 7, "hi\n"),
        ("echo first", "echo then", 0, "first\nthen\n"),
        ("exit 4", "echo never", 4, ""),
        (None, "false\necho never", 1, ""),  # the first error ends a script
        (None, "kill -9 $$", 137, ""),
        (None, "nosuchcommand 2>/dev/null", 127, ""),
    ],
)
def test_a_script_ends_as_shells_do(running: Running, setup: str | None, run: str, code: int, said: str) -> None:
    key = running.launch(run, setup=setup)

    assert running.end(key).code == code
    assert running.log(key) == said


def test_the_exit_code_of_a_job_that_saves_comes_through_its_shells(running: Running) -> None:
    """TERM reaches the shells as well; they wait for the program that writes its checkpoint."""
    program = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), sys.exit(85)))\n"
    (running.runner.root.parent / "program.py").write_text(program + "print('ready', flush=True)\nsignal.pause()\n")
    key = running.launch(f"cd .\n{sys.executable} program.py\necho never", setup="true")
    wait_for(lambda: "ready" in running.log(key), "the program to listen")

    running.runner.ask_to_stop(running.lease(key))
    ended = running.end(key)

    assert (ended.code, ended.asked) == (85, True)
    assert "never" not in running.log(key)


@pytest.mark.parametrize(
    "run",
    [
        "if {train}; then echo never; else echo never; fi; echo never",
        "{train} || true; echo never",
        "while ! {train}; do echo never; done",
        "until {train}; do echo never; done",
        "train() {{ {train}; }}; train || echo never",
    ],
)
def test_a_request_to_stop_ends_a_script_that_would_ignore_the_end_of_its_training(running: Running, run: str) -> None:
    program = "lease.restore(); print('ready', flush=True)\nwhile not lease.should_stop(): time.sleep(0.02)\n"
    (running.runner.root.parent / "train.py").write_text(
        f"import time\nfrom fairlead import lease\n{program}lease.stop()\n"
    )
    key = running.launch(run.format(train=f"{sys.executable} train.py"), env={"PYTHONPATH": str(SOURCE)})
    wait_for(lambda: "ready" in running.log(key), "the training")

    running.runner.ask_to_stop(running.lease(key))
    ended = running.end(key)

    assert (ended.code, ended.asked) == (85, True)
    assert running.log(key) == "ready\n"


def test_training_that_begins_after_the_request_to_stop_finds_it_in_the_stop_file(running: Running) -> None:
    """TERM reaches a command that has as good as finished, and the script continues with the next one."""
    root = running.runner.root.parent
    (root / "prepare.py").write_text(
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nprint('ready', flush=True)\nsignal.pause()\n"
    )
    (root / "train.py").write_text(
        "import time\nfrom fairlead import lease\nlease.restore()\n"
        "while not lease.should_stop(): time.sleep(0.02)\nlease.stop()\n"
    )
    run = f"if {sys.executable} prepare.py; then {sys.executable} train.py; fi"
    key = running.launch(run, env={"PYTHONPATH": str(SOURCE)})
    wait_for(lambda: "ready" in running.log(key), "the preparation")

    running.runner.ask_to_stop(running.lease(key))
    ended = running.end(key)

    assert (ended.code, ended.asked) == (85, True)


def test_a_program_in_a_script_within_the_script_has_its_grace_to_save(running: Running) -> None:
    """The inner shell has no trap and dies of TERM at once; what it started must not be killed with it."""
    root = running.runner.root.parent
    save = "lambda *_: (time.sleep(0.5), open('saved', 'w').close(), sys.exit(85))"
    (root / "program.py").write_text(
        f"import signal, sys, time\nsignal.signal(signal.SIGTERM, {save})\nprint('ready', flush=True)\nsignal.pause()\n"
    )
    (root / "inner.sh").write_text(f"{sys.executable} program.py\necho never\n")
    key = running.launch("sh inner.sh")
    wait_for(lambda: "ready" in running.log(key), "the program to listen")

    running.runner.ask_to_stop(running.lease(key))
    ended = running.end(key)

    assert (ended.code, ended.asked) == (128 + 15, True)
    assert (root / "saved").exists()


def test_a_program_that_no_signal_reaches_hears_of_it_through_the_stop_file(running: Running) -> None:
    """Its shell swallows TERM, and it runs in a session of its own, out of reach of signals to the job's group."""
    program = "while not lease.should_stop(): time.sleep(0.02)\nlease.stop()\n"
    (running.runner.root.parent / "program.py").write_text(
        f"import time\nfrom fairlead import lease\nlease.restore()\nprint('ready', flush=True)\n{program}"
    )
    key = running.launch(f"trap '' TERM; setsid --wait {sys.executable} program.py", env={"PYTHONPATH": str(SOURCE)})
    wait_for(lambda: "ready" in running.log(key), "the program")

    running.runner.ask_to_stop(running.lease(key))
    ended = running.end(key)

    assert (ended.code, ended.asked) == (85, True)


def test_a_job_that_failed_before_it_was_asked_to_stop_has_failed(running: Running) -> None:
    key = running.launch("exit 3")
    running.end(key)

    assert not running.runner.ask_to_stop(running.lease(key))

    assert (running.sight(key).code, running.sight(key).asked) == (3, False)


def test_a_job_that_is_asked_before_it_is_a_job_hears_it_all_the_same(running: Running) -> None:
    """A log that nobody reads yet holds the job up between its claim and its shell, where signals are ignored."""
    lease = Lease("job-a", 1, GPUS, Command("sleep infinity", workdir="/"))
    directory = running.runner.directory(lease.key)
    running.keys.append(lease.key)
    running.runner._lay_out(directory, lease)
    assert not running.runner.ask_to_stop(lease)  # nobody is there
    os.mkfifo(directory / shim.LOG)
    subprocess.run(program(shim.__name__, str(directory)), check=True)
    wait_for((directory / shim.CLAIM).exists, "the claim of a lease")  # a look would believe the log, which is there

    assert running.runner.ask_to_stop(lease)
    with open(os.open(directory / shim.LOG, os.O_RDONLY | os.O_NONBLOCK)):
        ended = running.end(lease.key)

    assert (ended.code, ended.asked) == (128 + 15, True)


def test_what_a_lease_leaves_on_disk_says_what_it_is(running: Running) -> None:
    before_s = time.time()
    key = running.launch("true")
    running.end(key)
    found = {name: json.loads((running.runner.directory(key) / name).read_text()) for name in ("claim", "exit.json")}

    assert found["claim"]["fairlead"] == "claim/1"
    assert found["exit.json"]["fairlead"] == "exit/1"
    assert before_s <= found["exit.json"]["time_s"] <= time.time()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a quarter of a megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount a small file system")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "rest").open("wb", buffering=0) as file:
        while True:
            file.write(b"." * 512)


def test_the_exit_code_of_a_job_is_recorded_although_the_disk_is_full(small_disk: Path, tmp_path: Path) -> None:
    running = Running(LocalRunner(small_disk / "state", DEVICES))
    key = running.launch(until_told(tmp_path / "over"))
    running.claimed(key)
    fill(small_disk)
    (tmp_path / "over").touch()

    ended = running.end(key)

    assert (ended.condition, ended.code) == (Condition.ENDED, 0)


def test_a_lease_on_a_full_disk_is_refused_and_starts_nothing(small_disk: Path) -> None:
    running = Running(LocalRunner(small_disk / "state", DEVICES))
    (small_disk / "state").mkdir()
    fill(small_disk)

    with pytest.raises(LaunchError, match="No space left"):
        running.launch("true")


def test_an_exit_code_that_cannot_be_written_is_written_as_soon_as_it_can(running: Running, tmp_path: Path) -> None:
    key = running.launch(until_told(tmp_path / "over"))
    running.claimed(key)
    directory = str(running.runner.directory(key))
    group = json.loads((running.runner.directory(key) / shim.CLAIM).read_text())["group"]
    (supervisor,) = shims(directory)
    _, most = resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    (tmp_path / "over").touch()
    wait_for(
        lambda: all(process.group != group for process in proc.all_processes().values()), "the end of its processes"
    )

    assert running.sight(key).condition is Condition.RUNNING
    resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (most, most))
    assert running.end(key).code == 0


def test_what_a_job_leaves_behind_goes_with_it(running: Running) -> None:
    """Its GPUs are given to somebody else, whether the rest is in its process group or has left it."""
    away = "setsid sh -c 'echo $$; touch away; exec sleep infinity' &"
    key = running.launch(f"sleep infinity & echo $!; {away} until [ -e away ]; do sleep 0.05; done; exit 0")
    assert running.end(key).code == 0

    for pid in map(int, running.log(key).split()):
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


# ---- who owns a lease --------------------------------------------------------------------------------------------------


def test_a_lease_is_never_launched_twice(running: Running) -> None:
    key = running.launch("echo once")
    running.end(key)

    with pytest.raises(LaunchError, match="was launched before"):
        running.launch("echo twice")

    assert running.log(key) == "once\n"


def test_a_lease_that_was_revoked_never_runs(running: Running) -> None:
    lease = Lease("job-a", 1, GPUS, Command("echo ran", workdir="/"))
    running.runner._lay_out(running.runner.directory(lease.key), lease)  # as far as a crash let it come
    assert running.sight(lease.key).condition is Condition.NEVER_CLAIMED

    assert running.runner.revoke(lease.key)
    subprocess.run(program(shim.__name__, str(running.runner.directory(lease.key))), check=True)
    directory = str(running.runner.directory(lease.key))
    wait_for(lambda: not any(directory in words for _, words in processes()), "the end of the shim")

    assert running.sight(lease.key).condition is Condition.VANISHED
    assert not (running.runner.directory(lease.key) / shim.LOG).exists()


def test_a_lease_that_runs_cannot_be_revoked(running: Running) -> None:
    key = running.launch("sleep infinity")
    running.claimed(key)

    assert not running.runner.revoke(key)
    assert running.sight(key).condition is Condition.RUNNING


def test_a_claim_of_before_the_last_boot_is_nobody_to_kill(running: Running) -> None:
    """Process numbers are used again: a stranger must not be hit."""
    stranger = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        lease = Lease("job-a", 1, GPUS, Command("true", workdir="/"))
        running.runner._lay_out(running.runner.directory(lease.key), lease)
        born = proc.born(stranger.pid)
        for boot, of in (("an earlier one", born), (None, born), (proc.boot(), 1)):
            claim = {"group": stranger.pid, "born": of, "boot": boot}
            (running.runner.directory(lease.key) / "claim").write_text(json.dumps(claim))
            (running.runner.directory(lease.key) / "gone").unlink(missing_ok=True)
            running.runner.kill(lease)
            assert running.sight(lease.key).condition is Condition.VANISHED, claim
        assert stranger.communicate(b"alive")[0] == b"alive"
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("found", ["", "{", "[]", "{}"])
def test_a_claim_that_cannot_be_read_and_that_nobody_holds_has_vanished(running: Running, found: str) -> None:
    """As a power cut may leave it: it must neither be waited for nor treated as one that can still be claimed."""
    lease = Lease("job-a", 1, GPUS, Command("true", workdir="/"))
    running.runner._lay_out(running.runner.directory(lease.key), lease)
    (running.runner.directory(lease.key) / "claim").write_text(found)

    running.runner.kill(lease)

    assert running.sight(lease.key).condition is Condition.VANISHED
    assert running.runner.revoke(lease.key)


def test_a_claim_is_on_disk_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    sync = os.fsync

    def noted(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        sync(file)

    monkeypatch.setattr(os, "fsync", noted)

    assert shim.claim(str(tmp_path / "claim"), {"group": 1})

    assert [Path(path).name.split(".")[0] for path in synced] == ["claim", tmp_path.name]
    assert os.listdir(tmp_path) == ["claim"]


def test_a_launch_that_took_too_long_and_was_claimed_runs(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def slow(words: list[str], **more: object) -> None:
        run(words, **more)  # type: ignore[call-overload]
        wait_for((Path(words[-1]) / "claim").exists, "the claim of a lease")
        raise subprocess.TimeoutExpired(words, 20)

    monkeypatch.setattr(subprocess, "run", slow)

    key = running.launch("echo ran")

    assert running.end(key).code == 0
    assert running.log(key) == "ran\n"


# ---- what a job cannot do ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", ["../a", "a/b", ".", "", "a\n", "-x", "x" * 300])
def test_a_job_id_cannot_leave_the_directory(running: Running, job: str) -> None:
    with pytest.raises(LaunchError, match="cannot name a directory"):
        running.runner.launch(Lease(job, 1, GPUS, Command("true")))


@pytest.mark.parametrize(
    "mischief",
    [
        "ln -s /etc/passwd $FAIRLEAD_REPORT",
        'echo \'{"at_s": 1, "step": 1}\' > other; ln -s $PWD/other $FAIRLEAD_REPORT',
        "mkfifo $FAIRLEAD_REPORT",
        "mkdir $FAIRLEAD_REPORT",
        "echo '[1, 2' > $FAIRLEAD_REPORT",
        'echo \'{"at_s": "x", "step": 1}\' > $FAIRLEAD_REPORT',
        'echo \'{"at_s": -1, "step": NaN}\' > $FAIRLEAD_REPORT',
        "head -c 3000000 /dev/zero > $FAIRLEAD_REPORT",
    ],
)
def test_a_report_that_makes_no_sense_is_no_report(running: Running, mischief: str) -> None:
    key = running.launch(mischief)

    ended = running.end(key)

    assert (ended.code, ended.report) == (0, None)


def test_numbers_that_make_no_sense_are_left_out_of_a_report(running: Running) -> None:
    key = running.launch('echo \'{"at_s": 1, "step": -3, "samples": true, "saved_step": 1e30}\' > $FAIRLEAD_REPORT')

    report = running.end(key).report

    assert report is not None
    assert (report.step, report.samples, report.saved_step) == (None, None, None)


# ---- whom it runs as ---------------------------------------------------------------------------------------------------


def test_a_user_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='no user "nobody-at-all"'):
        LocalRunner(tmp_path, DEVICES, accounts=parse_accounts(["nobody-at-all"]))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
@pytest.mark.parametrize("mask", [0o022, 0o077])  # the daemon's own is the second
def test_root_runs_jobs_as_the_user_it_is_given(mask: int) -> None:
    nobody = pwd.getpwnam("nobody")
    before = os.umask(mask)
    try:
        _run_as(nobody)
    finally:
        os.umask(before)


def _run_as(nobody: pwd.struct_passwd) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o711)
        made = Running(LocalRunner(Path(folder) / "state", DEVICES, accounts=parse_accounts(["nobody"])))
        key = made.launch(
            'id -u; id -G; cat $FAIRLEAD_LEASE > /dev/null && echo reads; echo \'{"at_s": 1, "step": 5}\' > $FAIRLEAD_REPORT; '
            f"touch $(dirname $FAIRLEAD_LEASE)/x 2>/dev/null || echo cannot; ls {folder}/state 2>/dev/null || echo closed",
            workdir="/",
        )
        ended = made.end(key)

        assert made.log(key) == f"{nobody.pw_uid}\n{nobody.pw_gid}\nreads\ncannot\nclosed\n"
        assert ended.report is not None
        assert ended.report.step == 5
        LocalRunner(
            Path(folder) / "state", DEVICES, accounts=parse_accounts(["nobody"])
        )  # and so it does after a restart

        waiting = made.launch(
            "trap '' TERM; echo deaf; until [ -e $FAIRLEAD_STOP ]; do sleep 0.1; done", 2, workdir="/"
        )
        wait_for(lambda: "deaf" in made.log(waiting), "a job that ignores signals")
        made.runner.ask_to_stop(made.lease(waiting))
        assert (made.end(waiting).code, made.end(waiting).asked) == (0, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
def test_a_closed_directory_above_the_leases_is_told_at_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(InputError, match="cannot enter"):
        LocalRunner(tmp_path / "state", DEVICES, accounts=parse_accounts(["nobody"]))
