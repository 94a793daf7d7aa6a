"""Gangs: which process stands for which GPUs, and that real ones begin and end together."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_local import Running

from fairlead.engines.leases import Condition, Gpu, Key, Lease, Sight
from fairlead.engines.local import shim
from fairlead.engines.local.devices import slots_as_devices
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.ranks import rank_environment, ranks_of
from fairlead.engines.requests import Command
from fairlead.model.handshake import CHECKPOINTED
from waiting import wait_for

SOURCE = Path(__file__).resolve().parents[2] / "src"
THREE = (Gpu("n-1", "v100", 0, 2), Gpu("n-1", "v100", 1, 1), Gpu("n-2", "k80", 1, 1))


def lease(processes: str) -> Lease:
    return Lease("job-a", 1, THREE, Command("true", processes=processes))


def test_a_job_that_does_not_ask_for_it_is_one_process() -> None:
    assert ranks_of(lease("one")) == ()
    assert Command("true").processes == "one"


def test_a_gang_has_a_process_for_each_node() -> None:
    first, second = ranks_of(lease("per-node"))

    assert (first.gpus, second.gpus) == ((0, 1), (2,))
    assert rank_environment(second, "10.0.0.1", 4711) == {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4711",
        "FAIRLEAD_NODES": "2",
        "FAIRLEAD_NODE_GPUS": "1",
    }


def test_or_for_each_gpu_and_then_it_sees_all_gpus_of_its_node() -> None:
    ranks = ranks_of(lease("per-gpu"))

    assert [(rank.rank, rank.node_rank, rank.local_rank, rank.local_world) for rank in ranks] == [
        (0, 0, 0, 2),
        (1, 0, 1, 2),
        (2, 1, 0, 1),
    ]
    assert [rank.gpus for rank in ranks] == [(0,), (1,), (2,)]
    assert [rank.visible for rank in ranks] == [(0, 1), (0, 1), (2,)]


def test_ranks_of_one_node_are_neighbours_whatever_the_order_of_gpus() -> None:
    mixed = Lease("a", 1, (THREE[0], THREE[2], THREE[1]), Command("true", processes="per-gpu"))

    assert [(rank.node, rank.gpus) for rank in ranks_of(mixed)] == [("n-1", (0,)), ("n-1", (2,)), ("n-2", (1,))]


def test_the_shim_spells_the_exit_code_of_a_checkpoint_like_training_scripts_do() -> None:
    """It imports nothing of ours, so that it is written down twice."""
    assert shim.CHECKPOINTED == CHECKPOINTED


# ---- real processes ----------------------------------------------------------------------------------------------------


class Gang(Running):
    def start(self, run: str, processes: str = "per-node", **more: object) -> Key:
        env = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        command = Command(run, workdir=str(self.runner.root.parent), env=env, processes=processes, **more)  # type: ignore[arg-type]
        made = Lease("job-a", len(self.keys) + 1, THREE, command)
        self.keys.append(made.key)
        self.runner.launch(made)
        return made.key

    def until_log(self, key: Key, good: Callable[[str], bool]) -> str:
        wait_for(lambda: good(self.log(key)), "what the job prints")
        return self.log(key)

    def processes(self, key: Key) -> list[int]:
        """Of the lease's group, as far as they live."""
        group = json.loads((self.runner.directory(key) / "claim").read_text())["group"]
        alive = []
        for entry in os.listdir("/proc"):
            try:
                state, _, of = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
            except (OSError, ValueError):
                continue
            if int(of) == group and state not in "ZX":
                alive.append(int(entry))
        return alive


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    made = Gang(LocalRunner(tmp_path / "state", slots_as_devices(["n-1", "n-2"], [2, 2])))
    yield made
    made.close()


def ended(gang: Gang, key: Key) -> Sight:
    sight = gang.end(key)
    assert gang.processes(key) == []
    return sight


def test_every_process_knows_its_rank_and_sees_the_gpus_of_its_node(gang: Gang) -> None:
    key = gang.start("echo $RANK/$WORLD_SIZE $NODE_RANK.$LOCAL_RANK $CUDA_VISIBLE_DEVICES $MASTER_ADDR", "per-gpu")

    assert ended(gang, key).code == 0
    assert sorted(gang.log(key).splitlines()) == [
        "0/3 0.0 0,1 127.0.0.1",
        "1/3 0.1 0,1 127.0.0.1",
        "2/3 1.0 3 127.0.0.1",
    ]


def test_the_ranks_of_a_gang_find_each_other_where_they_are_told_to_meet(gang: Gang) -> None:
    program = """
import os, socket, time
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(where) as server:
        print("heard", server.accept()[0].recv(9).decode())
else:
    while True:
        try:
            with socket.create_connection(where) as other:
                other.sendall(b"hello")
            break
        except OSError:
            time.sleep(0.05)
"""
    (gang.runner.root.parent / "meet.py").write_text(program)
    key = gang.start(f"exec {sys.executable} meet.py")

    assert ended(gang, key).code == 0
    assert gang.log(key) == "heard hello\n"


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_fails_ends_the_others_and_its_code_is_the_leases(gang: Gang, failing: int) -> None:
    key = gang.start(f"if [ $RANK = {failing} ]; then exit 7; fi; exec sleep infinity")

    sight = ended(gang, key)

    assert (sight.condition, sight.code, sight.asked) == (Condition.ENDED, 7, False)


def test_a_rank_that_ignores_that_another_failed_is_killed(gang: Gang) -> None:
    key = gang.start(
        "if [ $RANK = 1 ]; then until [ -e deaf ]; do sleep 0.05; done; exit 7; fi; "
        "trap '' TERM; touch deaf; while true; do sleep 0.1; done"
    )

    assert ended(gang, key).code == 7


def test_a_gang_is_through_when_all_of_it_is(gang: Gang) -> None:
    key = gang.start("if [ $RANK = 1 ]; then sleep 0.5; echo late; fi")

    assert ended(gang, key).code == 0
    assert gang.log(key) == "late\n"


TRAINING = """
import time
from fairlead import lease
lease.restore()
print("up", lease.tasks(), lease.tasks_by_process(), flush=True)
step = 0
while True:
    time.sleep(0.02)
    step += 1
    lease.report(step)
    if lease.should_stop():
        lease.stop(lambda folder: (folder / "step").write_text(str(step)))
"""


def test_a_gang_that_is_asked_to_stop_saves_once_and_leaves_together(gang: Gang) -> None:
    (gang.runner.root.parent / "train.py").write_text(TRAINING)
    key = gang.start(f"exec {sys.executable} train.py")
    gang.until_log(key, lambda text: text.count("up") == 2)
    assert "up (2, 1, 1) (3, 1)" in gang.log(key)

    def reached() -> bool:  # by the signal, or by the file, after which there may be nobody left to signal
        return gang.runner.ask_to_stop(gang.lease(key)) or gang.sight(key).condition is Condition.ENDED

    wait_for(reached, "the request to reach the whole gang")
    sight = ended(gang, key)

    assert (sight.code, sight.asked) == (85, True)
    assert sight.report is not None
    assert sight.report.saved_step == sight.report.step
    assert len(list((gang.runner.directory(key).parent / "checkpoints").glob("0*"))) == 1


def test_a_rank_that_saved_does_not_wait_longer_than_its_grace_for_the_others(gang: Gang) -> None:
    key = gang.start("if [ $RANK = 0 ]; then exit 85; fi; trap '' TERM; while true; do sleep 0.1; done", grace_s=0.5)

    assert ended(gang, key).code == 85


SAVING = """
import signal, time
signals = []
def note(number, frame):
    signals.append(number)
    print("term", flush=True)
signal.signal(signal.SIGTERM, note)
print("up", flush=True)
while not signals:
    time.sleep(0.02)
time.sleep(0.5)
print("saved")
raise SystemExit(85)
"""


def test_where_all_were_asked_a_rank_that_dies_of_it_does_not_disturb_the_one_that_saves(gang: Gang) -> None:
    (gang.runner.root.parent / "save.py").write_text(SAVING)
    key = gang.start(f"[ $RANK = 0 ] && exec {sys.executable} save.py; trap - TERM; echo up; exec sleep 60")
    gang.until_log(key, lambda text: text.count("up") == 2)

    wait_for(lambda: gang.runner.ask_to_stop(gang.lease(key)), "the request to reach the whole gang")

    assert ended(gang, key).asked
    assert gang.log(key).count("term") == 1
    assert "saved" in gang.log(key)


def test_a_kill_reaches_all_of_a_gang(gang: Gang) -> None:
    key = gang.start("trap '' TERM; echo up; while true; do sleep 0.1; done", "per-gpu")
    gang.until_log(key, lambda text: text.count("up") == 3)

    gang.runner.kill(gang.lease(key))

    assert ended(gang, key).code == 137
