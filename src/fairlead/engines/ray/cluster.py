"""Ray as this process sees it: questions to its driver (`side.py`), with deadlines. A driver that hangs is replaced."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fairlead.model.errors import FairleadError, InputError

CONNECT_S = 60.0  # for the driver to import Ray and to reach the head
ANSWER_S = 15.0
_AGAIN_S = 5.0  # between the end of a driver and the start of the next
_PAUSE_S = 0.05
_SIDE = "fairlead.engines.ray.side"


class RayError(FairleadError):
    """Ray did not do what was asked; whether it did it after all is unknown if `lost`."""

    def __init__(self, message: str, *, lost: bool = False) -> None:
        super().__init__(message)
        self.lost = lost


@dataclass(frozen=True, slots=True)
class RayNode:
    id: str
    name: str
    address: str
    labels: Mapping[str, str]
    resources: Mapping[str, float]
    free_gpus: float

    @property
    def gpus(self) -> int:
        return int(self.resources.get("GPU", 0))


@dataclass(frozen=True, slots=True)
class RayGroup:
    """A placement group of ours; `on` has the GPUs by the id of the node, which is empty while it is not placed."""

    state: str
    on: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class RayLook:
    nodes: Mapping[str, RayNode]  # that live, by name; of two with one name the first by its id
    actors: frozenset[str]
    groups: Mapping[str, RayGroup]  # that are not removed, by name

    def held(self) -> Counter[str]:
        """GPUs of these groups by the id of the node."""
        held: Counter[str] = Counter()
        for group in self.groups.values():
            held.update({node: int(gpus) for node, gpus in group.on if node})
        return held


class RayCluster:
    """A Ray cluster, reached through a driver that is a process of its own and ends with this one.

    The head may be gone for any time: then every question raises an error at once, until a driver has reached it again.
    """

    def __init__(self, address: str, *, answer_s: float = ANSWER_S) -> None:
        self.address = address
        self._answer_s = answer_s
        self._side: subprocess.Popen[str] | None = None
        self._connected = False
        self._began_s = -_AGAIN_S  # the start of the driver, or the end of the last one
        self._trouble = f"the driver of Ray at {address} starts"

    def look(self, prefix: str) -> RayLook:
        answer = self._ask("look", prefix=prefix, needed=True)
        nodes = [RayNode(id_, **node) for id_, node in sorted(answer["nodes"].items(), reverse=True)]
        groups = {group["name"]: RayGroup(group["state"], tuple(map(tuple, group["on"]))) for group in answer["groups"]}
        return RayLook({node.name: node for node in nodes}, frozenset(answer["actors"]), groups)

    def launch(
        self, name: str, directory: str, bundles: Sequence[Mapping[str, float]], nodes: Sequence[str], parts: int
    ) -> None:
        self._ask("launch", name=name, directory=directory, bundles=bundles, nodes=nodes, parts=parts)

    def ask_to_stop(self, actors: Sequence[str]) -> bool:
        return bool(self._ask("ask_to_stop", actors=actors))

    def kill(self, actors: Sequence[str]) -> None:
        self._ask("kill", actors=actors)

    def remove(self, name: str) -> None:
        self._ask("remove", name=name)

    def connect(self) -> None:
        """Wait until the head is reached; RayError if that takes too long."""
        give_up_s = time.monotonic() + CONNECT_S
        while not self._is_connected():
            if self._side is None or time.monotonic() >= give_up_s:
                raise RayError(self._trouble)
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        if self._side is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._side.pid, signal.SIGKILL)  # its group, which its own processes are in as well
            self._side.wait()
            for pipe in (self._side.stdin, self._side.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            self._side = None
        self._connected = False
        self._began_s = time.monotonic()

    def _ask(self, call: str, *, needed: bool = False, **words: Any) -> Any:
        """The answer of the driver. One that cannot answer what is `needed` belongs to a head that is gone."""
        if not self._is_connected():
            raise RayError(self._trouble, lost=True)
        side = self._side
        assert side is not None
        assert side.stdin is not None
        try:
            side.stdin.write(json.dumps({"call": call, **words}) + "\n")
            side.stdin.flush()
        except OSError:
            raise self._give_up("its driver has ended") from None
        answer = self._answer(self._answer_s)
        if answer is None:
            raise self._give_up(f"no answer within {self._answer_s:g} s")
        if "error" in answer and needed:
            raise self._give_up(answer["error"])
        if "error" in answer:
            raise RayError(f"Ray: {answer['error']}", lost=True)
        return answer["result"]

    def _is_connected(self) -> bool:
        """Whether questions can be asked. It does not wait, but starts a driver if there is none."""
        if self._connected:
            return True
        now_s = time.monotonic()
        if self._side is None:
            if now_s >= self._began_s + _AGAIN_S:
                self._start()
            return False
        answer = self._answer(0.0)
        if answer is not None and "result" in answer:
            self._connected = True
        elif answer is not None:
            self._give_up(answer["error"])
        elif now_s >= self._began_s + CONNECT_S:
            self._give_up(f"not reached within {CONNECT_S:g} s")
        return self._connected

    def _start(self) -> None:
        self._began_s = time.monotonic()
        self._side = subprocess.Popen(
            [sys.executable, "-m", _SIDE, self.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        )

    def _answer(self, within_s: float) -> dict[str, Any] | None:
        """The next line of the driver; None if there is none in time. A driver that has ended says so."""
        assert self._side is not None
        assert self._side.stdout is not None
        if not select.select([self._side.stdout], [], [], within_s)[0]:
            return None
        line = self._side.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its driver has ended"}
        if not line:
            self._give_up(answer["error"])
        return answer

    def _give_up(self, reason: str) -> RayError:
        self.close()
        self._trouble = f"Ray at {self.address} does not answer ({reason}); running jobs are left alone until it does"
        return RayError(self._trouble, lost=True)


def check_installed() -> None:
    """InputError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise InputError("--engine ray needs Ray, which is not installed; pip install 'fairlead[ray]'")
