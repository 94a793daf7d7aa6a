"""The worker side in real processes: signals, checkpoints, fences, pace, and scripts without Fairlead."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlead.lease.checkpoints import Checkpoints, SupersededError
from fairlead.lease.worker import Worker, _gpus_of, _pace, own_work_s
from waiting import PATIENCE_S, wait_for

SOURCE = Path(__file__).resolve().parents[2] / "src"
COUNTING = """
import sys, time
from fairlead import lease
saved = lease.restore()
step = int((saved / "step").read_text()) if saved else 0
print("from", step, flush=True)
while step < int(sys.argv[1]):
    time.sleep(0.02)
    step += 1
    lease.report(step, samples=8 * step)
    if lease.should_stop():
        lease.stop(lambda folder: (folder / "step").write_text(str(step)))
print("through")
"""

VIRTUAL_CLOCK = """
import time
now_s = [0.0]
time.monotonic = lambda: now_s[0]
time.sleep = lambda seconds: now_s.append(now_s.pop() + seconds)
"""


def start(
    folder: Path,
    script: str,
    *arguments: str,
    number: int = 1,
    pace: Sequence[float] | None = None,
    tasks: int = 1,
    ranks: Sequence[Sequence[int]] = (),
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    lease = {
        "number": number,
        "gpus": [{"tasks": tasks} for _ in pace or [1]],
        "emulated": pace is not None,
        "pace": pace,
        "checkpoint_dir": str(folder / "checkpoints"),
        "ranks": ranks,
    }
    path = folder / f"lease-{number}.json"
    path.write_text(json.dumps(lease))
    ours = {"PYTHONPATH": str(SOURCE), "FAIRLEAD_LEASE": str(path), "FAIRLEAD_REPORT": str(folder / "progress.json")}
    words = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(words, env=ours | {**(env or {})}, stdout=subprocess.PIPE, text=True)


def report(folder: Path) -> dict[str, Any]:
    progress: dict[str, Any] = json.loads((folder / "progress.json").read_text())
    return progress


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_script_that_is_asked_to_stop_saves_and_continues_from_there(tmp_path: Path, number: int) -> None:
    first = start(tmp_path, COUNTING, str(10**9))
    assert first.stdout is not None
    assert first.stdout.readline() == "from 0\n"
    wait_for((tmp_path / "progress.json").exists, "the first report")
    first.send_signal(number)
    first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 85
    assert report(tmp_path)["fairlead"] == "progress/1"
    saved = report(tmp_path)["saved_step"]
    assert saved == report(tmp_path)["step"] > 0
    assert report(tmp_path)["saved_samples"] == 8 * saved

    second = start(tmp_path, COUNTING, str(int(saved) + 2), number=2)
    output, _ = second.communicate(timeout=PATIENCE_S)

    assert output == f"from {saved:g}\nthrough\n"
    assert second.returncode == 0
    assert report(tmp_path)["step"] == saved + 2


def test_a_script_also_runs_without_fairlead(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, "3"], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout == "from 0\nthrough\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("pace", "tasks", "longer"), [([1.0], 1, 1.0), ([0.25], 1, 4.0), ([0.5, 1.0], 2, 4.0)])
def test_an_emulated_gpu_takes_as_much_longer_as_it_is_slower(
    tmp_path: Path, pace: list[float], tasks: int, longer: float
) -> None:
    """Ten steps of 20 ms of work, by a clock that only sleeping moves: the machine may be busy. A gang waits for its
    slowest GPU, which runs its tasks one after another.
    """
    script = VIRTUAL_CLOCK + COUNTING.replace('print("through")', "print(time.monotonic(), lease.emulated())")
    output, _ = start(tmp_path, script, "10", pace=pace, tasks=tasks).communicate(timeout=PATIENCE_S)

    seconds, emulated = output.split("\n")[1].split()
    assert float(seconds) == pytest.approx(0.2 * longer)
    assert emulated == "True"


THREADED = """
import sys, threading
exec_ = compile(sys.argv[2], "script", "exec")
thread = threading.Thread(target=lambda: exec(exec_, {}))
thread.start()
thread.join()
sys.exit(9)
"""


LEAVING = """
import atexit, gc, sys
from fairlead import lease
class Loop:
    def __init__(self): self.self = self
    def __del__(self): print("cleaned up")
loop, file = Loop(), open(sys.argv[1], "w")
file.write("flushed")
lease.restore()
atexit.register(print, "handler")
try:
    lease.stop()
finally:
    print("finally", gc.get_freeze_count() > 1000)
"""


def test_a_script_that_leaves_runs_its_handlers_and_does_not_search_for_cycles(tmp_path: Path) -> None:
    process = start(tmp_path, LEAVING, str(tmp_path / "written"))

    printed, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 85
    assert printed == "finally True\nhandler\n"
    assert (tmp_path / "written").read_text() == "flushed"


def test_training_in_a_thread_sees_the_stop_file_and_ends_the_process(tmp_path: Path) -> None:
    """A thread cannot set a signal handler, and SystemExit would end only the thread."""
    job = start(tmp_path, THREADED, "100000", COUNTING, env={"FAIRLEAD_STOP": str(tmp_path / "stop")})
    assert job.stdout is not None
    assert job.stdout.readline() == "from 0\n"
    (tmp_path / "stop").touch()

    job.communicate(timeout=PATIENCE_S)

    assert job.returncode == 85
    assert report(tmp_path)["saved_step"] == report(tmp_path)["step"]


def test_the_stop_file_is_checked_once_a_second_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, looks = 100.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    there = os.path.exists

    def noted(path: str) -> bool:
        looks.append(now_s)
        return there(path)

    monkeypatch.setattr(os.path, "exists", noted)
    lease = {"number": 1, "gpus": [{"tasks": 1}], "emulated": False, "pace": None, "checkpoint_dir": str(tmp_path)}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    worker = Worker(lease, {"FAIRLEAD_STOP": str(tmp_path / "stop")})
    for number, handler in handlers.items():
        signal.signal(number, handler)

    answers = []
    for now_s in (100.0, 100.5, 100.9, 101.0, 101.5, 102.0, 103.0):
        if now_s == 101.5:
            (tmp_path / "stop").touch()
        answers.append(worker.should_stop())

    assert looks == [100.0, 101.0, 102.0]
    assert answers == [False, False, False, False, False, True, True]


def test_a_worker_reports_as_often_as_the_engine_asks_for(tmp_path: Path) -> None:
    """Ten steps in 0.2 s: with an hour between two reports, only the first and the one at the end are written."""
    script = COUNTING.replace(
        "lease.report(step, samples=8 * step)",
        """
    lease.report(step)
    written = json.loads(open(os.environ["FAIRLEAD_REPORT"]).read())["step"]
    assert written == 1, written
""",
    ).replace("import sys", "import json, os, sys")
    job = start(tmp_path, script, "10", env={"FAIRLEAD_REPORT_EVERY": "3600"})
    job.communicate(timeout=PATIENCE_S)

    assert job.returncode == 0
    assert report(tmp_path)["step"] == 10


@pytest.mark.parametrize(
    ("ranks", "rank", "world", "pace"),
    [
        ([], 0, 1, 0.25),  # one process for all: the slowest GPU, which runs two tasks
        ([[0, 1], [2]], 0, 2, 0.5),  # a node with two GPUs of pace 1 that run two tasks each
        ([[0, 1], [2]], 1, 2, 0.5),  # a process with a GPU of its own runs its tasks for real
        ([[0], [1], [2]], 2, 3, 0.5),
        ([[0, 1], [2]], 2, 3, 0.5),  # torchrun made a rank for each GPU
        ([], 7, 8, 1.0),
    ],
)
def test_a_process_keeps_the_pace_of_the_gpus_that_it_represents(
    ranks: list[list[int]], rank: int, world: int, pace: float
) -> None:
    paces = [1.0, 1.0, 0.5]

    assert _pace(paces, [2, 2, 2], _gpus_of(rank, world, ranks, paces)) == pace


def test_a_rank_without_a_task_slows_nothing_down() -> None:
    assert _pace([1.0, 0.4, 0.4], [2, 1, 0], [2]) == 1.0


def save(number: int, folder: Path, text: str) -> Path:
    return Checkpoints(folder, number).save(lambda into: (into / "x").write_text(text), {"step": 1})


def newest(folder: Path, number: int) -> str:
    newest, _ = Checkpoints(folder, number).newest()
    assert newest is not None
    return (newest / "x").read_text()


def test_a_process_that_was_given_up_can_no_longer_save(tmp_path: Path) -> None:
    stale = Checkpoints(tmp_path, 3)
    save(4, tmp_path, "new")

    with pytest.raises(SupersededError, match="lease 4 of this job has begun, and lease 3, this one,"):
        stale.save(lambda into: (into / "x").write_text("old"), {})

    assert newest(tmp_path, 5) == "new"


def test_a_process_that_was_given_up_while_saving_changes_nothing(tmp_path: Path) -> None:
    """The successor begins, restores and saves while the old process is still writing."""
    stale = Checkpoints(tmp_path, 3)
    stale.save(lambda into: (into / "x").write_text("before"), {})

    def slowly(into: Path) -> None:
        (into / "x").write_text("old")
        assert newest(tmp_path, 4) == "before"
        save(4, tmp_path, "new")

    with pytest.raises((SupersededError, FileNotFoundError)):
        stale.save(slowly, {})

    assert newest(tmp_path, 5) == "new"


def test_the_newest_is_that_of_the_latest_lease_whatever_the_clock_shows(tmp_path: Path) -> None:
    old, new = save(1, tmp_path, "old"), save(2, tmp_path, "new")
    os.utime(old, (2e9, 2e9))
    os.utime(new, (1e9, 1e9))

    assert newest(tmp_path, 3) == "new"


def test_a_checkpoint_that_was_cut_off_is_never_found(tmp_path: Path) -> None:
    save(1, tmp_path, "whole")

    def dies(into: Path) -> None:
        (into / "x").write_text("ha")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Checkpoints(tmp_path, 2).save(dies, {})

    assert newest(tmp_path, 3) == "whole"
    assert not list(tmp_path.glob(".draft*"))  # cleared away by the next lease


def test_old_checkpoints_are_dropped_and_the_one_before_the_newest_is_kept(tmp_path: Path) -> None:
    mine = Checkpoints(tmp_path, 1)
    for number in range(5):
        mine.save(lambda into, text=str(number): (into / "x").write_text(text), {})  # type: ignore[misc]

    assert sorted(path.name for path in tmp_path.glob("0*")) == ["0000000001-000004", "0000000001-000005"]
    assert newest(tmp_path, 2) == "4"


def test_ranks_that_wait_for_each_other_do_not_slow_each_other_down_more_and_more() -> None:
    """Two ranks on GPUs of a quarter of the speed; one of them is late once. A step is a second of work for both."""
    awake_s, work_s, step_s = [0.0, 0.5], [math.inf, math.inf], []
    for _ in range(40):
        met_s = max(awake_s) + 1.0  # the ranks exchange gradients when the last of them has worked
        work_s = [own_work_s(met_s - since_s, before_s) for since_s, before_s in zip(awake_s, work_s, strict=True)]
        awake_s = [met_s + 3.0 * own_s for own_s in work_s]
        step_s.append(max(awake_s) - met_s + 1.0)

    assert max(step_s[2:]) < 1.2 * 4.0


TORN_DOWN = """
import os, signal, sys
from fairlead import lease
class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=int(sys.argv[1])):
        kill(pid, number)
lease.restore()
last = Last()  # the interpreter deletes it after it has given signals their usual meaning back
lease.report(7)
print("through", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_script_that_is_asked_to_stop_while_its_interpreter_ends_has_finished(tmp_path: Path, number: int) -> None:
    process = start(tmp_path, TORN_DOWN, str(int(number)))

    printed, _ = process.communicate(timeout=PATIENCE_S)

    assert printed == "through\n"
    assert process.returncode == 0
    assert report(tmp_path)["step"] == 7


def test_the_example_that_is_stopped_after_its_last_step_finishes_when_it_continues(tmp_path: Path) -> None:
    script = "import sys; sys.argv[1:] = ['--steps', '1']; from fairlead.lease.example import main; main()"
    in_one_go = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )
    stop = tmp_path / "stop"
    stop.touch()
    first = start(tmp_path, script, env={"FAIRLEAD_STOP": str(stop)})
    stopped, _ = first.communicate(timeout=PATIENCE_S)

    second = start(tmp_path, script, number=2)
    finished, _ = second.communicate(timeout=PATIENCE_S)

    assert (first.returncode, stopped) == (85, "from step 0 of 1\nstopped after step 1\n")
    assert (second.returncode, finished) == (0, in_one_go.stdout.replace("from step 0", "from step 1"))


@pytest.mark.parametrize("about", ["", "[1]", "7", "null", "\x00"])
def test_a_checkpoint_whose_description_is_damaged_is_passed_over(tmp_path: Path, about: str) -> None:
    save(1, tmp_path, "older")
    (save(2, tmp_path, "newer") / "about.json").write_text(about)

    assert newest(tmp_path, 3) == "older"


def test_a_fence_that_cannot_be_read_is_raised_again(tmp_path: Path) -> None:
    (tmp_path / "fence").write_bytes(b"\xff\xfe")

    assert save(4, tmp_path, "new").exists()
    assert (tmp_path / "fence").read_text() == "4"


def test_a_description_of_a_lease_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    path.write_text("[]")
    env = {"PYTHONPATH": str(SOURCE), "FAIRLEAD_LEASE": str(path)}
    done = subprocess.run([sys.executable, "-c", COUNTING, "3"], env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"{path} no longer describes a lease" in done.stderr
