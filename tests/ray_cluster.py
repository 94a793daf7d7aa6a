"""A real Ray cluster of several nodes on this machine, in a temporary folder and on free ports, for tests.

Every node is a `ray start --block` in a session of its own, and is stopped by pid. One cluster serves all tests of a run:
`shared_cluster` has the two nodes of the engine worlds, and pytest-xdist keeps its tests in one worker (`conftest.py`).
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from fairlead.engines.ray.cluster import RayCluster, RayLook
from slurm_cluster import free_ports
from waiting import wait_for

LABEL = "gpu-type"
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # else Ray replaces 127.0.0.1 by the machine's address
_SETTINGS = {  # a death is noticed after seconds
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
    "RAY_worker_niceness": "0",  # jobs would inherit 15, and starve on a busy machine
    "RAY_USAGE_STATS_ENABLED": "0",
    **ON_LOOPBACK,
}
# `ray start`, which otherwise refuses to add nodes to a cluster on 127.0.0.1.
_START = """
from ray._private import ray_constants, services
ray_constants.ENABLE_RAY_CLUSTER, services.get_node_ip_address = True, lambda address=None: "127.0.0.1"
from ray.scripts.scripts import main
main()
"""
_STARTED = "Ray runtime started"


def missing() -> str | None:
    """Why no cluster can be started here, with the remedy; None if one can."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed; pip install 'fairlead[ray]' to run this"
    return None


@dataclass(frozen=True)
class TestNode:
    __test__ = False

    name: str
    type: str
    gpus: int


class RayTestCluster:
    """A running cluster, whose first node is the head."""

    def __init__(self, nodes: Sequence[TestNode]) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="fl-ray-", dir="/tmp"))  # short: sockets have short paths
        self.nodes = {node.name: node for node in nodes}
        self.head = nodes[0].name
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        os.environ.update(ON_LOOPBACK)  # of drivers, which are processes of their own
        with free_ports(1) as ports:
            self.address = f"127.0.0.1:{ports[0]}"
        atexit.register(self.stop)
        for node in nodes:  # one after another: Ray loses nodes of one machine that start together
            self.start_node(node.name)

    def start_node(self, name: str) -> None:
        node, log = self.nodes[name], self.root / f"{name}.log"
        where = [f"--address={self.address}"]
        if name == self.head:
            where = ["--head", f"--port={self.address.rpartition(':')[2]}", "--include-dashboard=false"]
        words = [
            *(sys.executable, "-c", _START, "start", *where, "--block", "--disable-usage-stats"),
            *("--node-ip-address=127.0.0.1", f"--node-name={name}", f"--temp-dir={self.root}"),
            *("--object-store-memory=78643200", "--include-log-monitor=false"),
            *(f"--num-cpus={2 if name == self.head else 0}", f"--num-gpus={node.gpus}"),
            *([f"--labels={LABEL}={node.type}"] if node.gpus else []),
        ]
        with log.open("wb") as output:
            self._processes[name] = subprocess.Popen(
                words,
                env={**os.environ, **_SETTINGS},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_for(lambda: _STARTED in log.read_text() or self._processes[name].poll() is not None, f"node {name} of Ray")
        assert self._processes[name].poll() is None, log.read_text()

    def kill_node(self, name: str) -> None:
        """As a machine that loses its power, but for the processes of jobs."""
        process = self._processes.pop(name)
        for pid in _children(process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()

    def add(self, node: TestNode) -> None:
        """Until `remove`: other tests do not count on it."""
        self.nodes[node.name] = node
        self.start_node(node.name)

    def remove(self, name: str) -> None:
        if name in self._processes:
            self.kill_node(name)
        del self.nodes[name]

    def restart_head(self) -> None:
        """Kill the head and start another one, which knows nothing. The nodes notice, and are started again as well."""
        if "driver" in self.__dict__:
            self.__dict__.pop("driver").close()
        self.kill_node(self.head)
        others = [name for name in self.nodes if name in self._processes]
        wait_for(lambda: all(self._processes[name].poll() is not None for name in others), "Ray's nodes to end")
        for name in others:
            del self._processes[name]
        for name in (self.head, *others):
            self.start_node(name)

    def clear(self) -> None:
        """Bring every node back, and remove what tests have left. Returns when all GPUs are free."""
        for name in self.nodes:
            if name not in self._processes:
                self.start_node(name)

        def cleared() -> bool:
            look = self.driver.look("")
            for name in {*look.groups, *(actor.rpartition("/")[0] for actor in look.actors)}:
                self.driver.remove(name)
            return not look.actors and not look.groups and self._all_free(look)

        wait_for(cleared, "Ray to be empty")

    def hold(self, node: str, gpus: int) -> None:
        """Let work that is not Fairlead's hold GPUs of a node, until `clear`."""
        self.driver.launch(f"other work on {node}", "", [{"GPU": gpus}], [self.driver.look("").nodes[node].id], 0)

    @cached_property
    def driver(self) -> RayCluster:
        """A driver that tests share, because a new one takes seconds."""
        driver = RayCluster(self.address)
        driver.connect()
        return driver

    def _all_free(self, look: RayLook) -> bool:
        free = {name: int(node.free_gpus) for name, node in look.nodes.items()}
        return free == {node.name: node.gpus for node in self.nodes.values()}

    def stop(self) -> None:
        atexit.unregister(self.stop)
        if "driver" in self.__dict__:  # it was needed
            self.driver.close()
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in reversed(self._processes.values()):
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            for pid in _children(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()
        self._processes.clear()
        shutil.rmtree(self.root, ignore_errors=True)


@cache
def shared_cluster() -> RayTestCluster:
    """The two nodes of `engine_world.CLUSTER`. The head has the GPU of the slow one, because the fast one is killed."""
    return RayTestCluster([TestNode("k80-1", "k80", 1), TestNode("v100-1", "v100", 2)])


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children]
    return []
