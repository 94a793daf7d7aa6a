"""What is special about leases on Ray: types of nodes, parts of gangs, and a driver that may hang."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_world import CLUSTER, Does, Inbox
from local_world import commands
from ray_world import RayWorld

from building import Scene
from fairlead.engines.leases import Condition, Gpu, Lease
from fairlead.engines.live import LiveEngine
from fairlead.engines.local import shim
from fairlead.engines.local.programs import program
from fairlead.engines.ray import part
from fairlead.engines.ray.actor import NodePart
from fairlead.engines.ray.cluster import RayCluster, RayError, RayGroup, RayLook, RayNode
from fairlead.engines.ray.importing import gpu_of
from fairlead.engines.ray.runner import RayRunner
from fairlead.engines.requests import Command
from fairlead.model.errors import InputError
from ray_cluster import missing, shared_cluster
from waiting import PATIENCE_S, wait_for

NOWHERE = "127.0.0.1:1"  # no head listens there
real = [
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]


# ---- types ---------------------------------------------------------------------------------------------------------


def node(labels: dict[str, str] | None = None, resource: str = "GPU") -> RayNode:
    return RayNode("1", "a", "127.0.0.1", labels or {}, {"GPU": 2.0, resource: 2.0}, 2.0)


def test_the_type_of_a_node_is_its_label_or_its_resource_or_the_alias() -> None:
    both = {"gpu-type": "V100", "ray.io/accelerator-type": "A100"}
    assert gpu_of(node(both), {}) == "v100"
    assert gpu_of(node({"ray.io/accelerator-type": "A100"}), {}) == "a100"
    assert gpu_of(node(resource="accelerator_type:T4"), {}) == "t4"
    assert gpu_of(node({"gpu-type": "Big"}), {"Big": "h100"}) == "h100"
    assert gpu_of(node(), {"gpu": "k80"}) == "k80"


def test_a_node_of_unknown_type_is_refused_with_the_remedies() -> None:
    with pytest.raises(InputError, match=r"--labels gpu-type=v100, or .* --alias gpu=v100"):
        gpu_of(node(), {})


# ---- parts of a gang, without Ray ----------------------------------------------------------------------------------


class Parts:
    """The parts of a lease on two nodes, as actors would start them."""

    def __init__(self, root: Path, run: str, stack: ExitStack) -> None:
        command = Command(run, workdir=str(root), processes="per-node", grace_s=PATIENCE_S)
        lease = Lease("a", 1, (Gpu("n1", "v100", None), Gpu("n2", "v100", None)), command)
        ray = stack.enter_context(closing(RayCluster(NOWHERE)))
        self.runner = RayRunner(root / "state", ray, gpus_of=dict)
        self.runner.launch(lease)  # no head answers, so that nothing begins yet
        self.directory = self.runner.directory(lease.key)
        self.leashes = [self._begin(number, stack) for number in (0, 1)]

    def _begin(self, number: int, stack: ExitStack) -> socket.socket:
        ours, theirs = socket.socketpair()
        stack.enter_context(closing(ours))
        with theirs:
            words = program(part.__name__, str(self.directory), str(number), "127.0.0.1")
            subprocess.run(words, stdin=theirs.fileno(), check=True)
        return ours

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def until_over(self) -> list[bytes]:
        """What the parts say when they have ended."""
        for leash in self.leashes:
            leash.settimeout(PATIENCE_S)
        return [leash.recv(1) for leash in self.leashes]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_the_parts_of_a_gang_begin_together_and_their_logs_become_one(tmp_path: Path, stack: ExitStack) -> None:
    parts = Parts(tmp_path, "echo $RANK of $WORLD_SIZE meets at $MASTER_ADDR; test $MASTER_PORT -gt 0", stack)

    assert parts.until_over() == [part.OVER, part.OVER]

    assert sorted(parts.log().splitlines()) == [f"{rank} of 2 meets at 127.0.0.1" for rank in (0, 1)]
    assert json.loads((parts.directory / "exit.json").read_text())["code"] == 0


def test_a_part_that_fails_ends_the_others_and_its_exit_code_is_that_of_the_lease(
    tmp_path: Path, stack: ExitStack
) -> None:
    parts = Parts(tmp_path, "[ $RANK = 0 ] || exit 3; exec sleep 9999", stack)

    assert parts.until_over() == [part.OVER, part.OVER]

    assert json.loads((parts.directory / "exit.json").read_text())["code"] == 3


def test_a_part_whose_actor_is_gone_is_asked_to_stop(tmp_path: Path, stack: ExitStack) -> None:
    parts = Parts(tmp_path, "trap 'exit 85' TERM; echo begun; while :; do sleep 0.1; done", stack)
    wait_for(lambda: (parts.directory / "log").exists() and parts.log().count("begun") == 2, "both parts to begin")

    parts.leashes[1].close()

    assert parts.leashes[0].recv(1) == part.OVER
    assert json.loads((parts.directory / "exit.json").read_text())["code"] == 85


def test_a_part_that_is_lost_ends_the_others_and_leaves_no_exit_code(tmp_path: Path, stack: ExitStack) -> None:
    """The runner notes it if a node is gone; then nothing that the other ranks do can have a result."""
    parts = Parts(tmp_path, "trap '' TERM; echo begun; while :; do sleep 0.1; done", stack)
    wait_for(lambda: (parts.directory / "log").exists() and parts.log().count("begun") == 2, "both parts to begin")

    (parts.directory / part.PARTS / "1" / part.LOST).touch()

    assert parts.leashes[0].recv(1) == part.OVER
    assert (parts.directory / part.PARTS / "1" / "exit.json").exists()  # long before its grace period was over
    assert not (parts.directory / "exit.json").exists()


def laid_out(root: Path, *, log_bytes: int | None = None) -> tuple[RayRunner, Lease]:
    """A lease on two nodes, for which no head has answered."""
    command = Command("true", workdir=str(root), processes="per-node", grace_s=7.0)
    lease = Lease("a", 1, (Gpu("n1", "v100", None), Gpu("n2", "v100", None)), command, log_bytes=log_bytes)
    runner = RayRunner(root / "state", RayCluster(NOWHERE), gpus_of=dict)
    runner.launch(lease)
    runner.close()
    return runner, lease


def test_a_part_that_cannot_write_goes_on_watching(tmp_path: Path) -> None:
    runner, lease = laid_out(tmp_path)
    watched, leash = part._Part(str(runner.directory(lease.key)), 1), part._Leash.__new__(part._Leash)
    leash.is_off = True
    shutil.rmtree(runner.root)

    assert part._time_to_end(watched, leash, undecided=True) == 7.0


def test_logs_of_parts_stay_within_the_limit_of_the_lease(tmp_path: Path) -> None:
    runner, lease = laid_out(tmp_path, log_bytes=100)
    directory = runner.directory(lease.key)
    log, of_part = part._Log(part._Part(str(directory), 0)), directory / part.PARTS / "1" / "log"

    for _ in range(3):
        with of_part.open("a") as file:
            file.write("0123456789\n" * 20)
        log.merge()
        assert of_part.stat().st_size <= 100

    assert (directory / "log").read_text() == "0123456789\n" * 60


def test_an_actor_whose_part_was_killed_before_it_read_a_request_notices_its_end() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        actor = NodePart.__new__(NodePart)
        actor._leash = ours
        actor.ask_to_stop()
        theirs.close()

        assert not actor._is_over()


class SlowAnswers(RayCluster):
    """Ray, of which only the answer to a launch is lost; the parts begin at once."""

    seen = RayLook(
        {name: RayNode(name, name, "127.0.0.1", {}, {"GPU": 1.0}, 1.0) for name in ("n1", "n2")}, frozenset(), {}
    )
    launched = 0

    def look(self, prefix: str) -> RayLook:
        return self.seen

    def launch(self, name: str, directory: str, bundles: Any, nodes: Sequence[str], parts: int) -> None:
        self.launched += 1
        actors = frozenset(f"{name}/{number}" for number in range(parts))
        self.seen = replace(
            self.seen, actors=actors, groups={name: RayGroup("CREATED", tuple((n, 1.0) for n in nodes))}
        )
        shim.claim(f"{directory}/claim", {"address": "127.0.0.1", "port": 1})
        raise RayError("no answer", lost=True)

    def remove(self, name: str) -> None:
        self.seen = replace(self.seen, groups={})


def test_a_lease_that_begins_while_it_is_sent_again_is_not_lost_and_not_sent_twice(tmp_path: Path) -> None:
    runner, lease = laid_out(tmp_path)
    runner._ray = ray = SlowAnswers(NOWHERE)

    for _ in range(3):
        look = runner.look([lease.key])

    assert look.sight(lease.key).condition is Condition.RUNNING
    assert not list(runner.root.rglob(part.LOST))
    assert ray.launched == 1


def test_gpus_of_a_lease_that_was_revoked_while_no_head_answered_become_free(tmp_path: Path) -> None:
    runner, lease = laid_out(tmp_path)
    assert runner.revoke(lease.key)
    runner._ray = ray = SlowAnswers(NOWHERE)
    name = runner._name(lease.key)
    ray.seen = replace(ray.seen, groups={name: RayGroup("CREATED", (("n1", 1.0), ("n2", 1.0)))})

    assert runner.look([lease.key]).sight(lease.key).condition is Condition.VANISHED
    assert not ray.seen.groups


def test_a_lease_without_a_directory_is_not_sent_again(tmp_path: Path) -> None:
    runner, lease = laid_out(tmp_path)
    shutil.rmtree(runner.root)

    assert runner.revoke(lease.key)
    runner._ray = ray = SlowAnswers(NOWHERE)
    runner.look([])
    assert ray.launched == 0


# ---- the driver ----------------------------------------------------------------------------------------------------


def test_without_a_head_nothing_is_known_and_nothing_waits(tmp_path: Path) -> None:
    with closing(RayCluster(NOWHERE)) as ray:
        look = RayRunner(tmp_path, ray, gpus_of=lambda: {"a": 1}).look([("a", 1)])

    assert look.sights == {}
    assert look.down is None
    assert NOWHERE in look.trouble


def test_an_engine_that_cannot_reach_its_runner_says_so_without_an_event(tmp_path: Path) -> None:
    state, commands_of = Scene([], "v100:1").state(), dict[str, Command]()
    with closing(RayCluster(NOWHERE)) as ray:
        runner = RayRunner(tmp_path, ray, gpus_of=lambda: {"v100-1": 1})
        engine = LiveEngine(state, runner, Inbox(lambda seconds: None), commands_of.__getitem__, lambda: 0.0)

        assert engine.wait(1000.0) == []  # long before that time

    assert NOWHERE in engine.trouble


class TestDriver:
    pytestmark = real

    def test_a_driver_that_hangs_is_replaced(self) -> None:
        with closing(RayCluster(shared_cluster().address, answer_s=5.0)) as ray:
            ray.connect()
            assert ray._side is not None
            os.kill(ray._side.pid, signal.SIGSTOP)

            with pytest.raises(RayError, match=r"no answer within 5 s") as error:
                ray.look("")
            assert error.value.lost

            def answers() -> bool:
                try:
                    return set(ray.look("").nodes) == set(CLUSTER.nodes)
                except RayError:
                    return False

            wait_for(answers, "another driver")

    def test_a_lease_that_was_launched_before_a_head_answered_begins_when_it_does(self, tmp_path: Path) -> None:
        world = RayWorld(tmp_path)
        with closing(RayCluster(world.ray.address)) as ray:
            runner = RayRunner(tmp_path / "early", ray, gpus_of=lambda: {"v100-1": 2}, look_s=0.2)
            lease = Lease("a", 1, (Gpu("v100-1", "v100", None),), commands(tmp_path, Does.END, 0))
            runner.launch(lease)

            wait_for(lambda: runner.look([lease.key]).sight(lease.key).condition is Condition.ENDED, "its end")

            assert runner.look([lease.key]).sight(lease.key).code == 0
        world.close()
