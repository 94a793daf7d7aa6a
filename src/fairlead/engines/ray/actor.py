"""The actor that Ray starts on each node of a lease. It holds the GPUs, and starts the program that runs the job there."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from contextlib import suppress
from typing import Any

from fairlead.engines.local.programs import program
from fairlead.engines.ray import part


class NodePart:
    """Lives as long as the processes of the job on its node. These end soon if it ends first, however it ends."""

    def __init__(self, directory: str, number: int, address: str, group: Any) -> None:
        self._words = (directory, str(number))
        self._group = group
        self._leash, end = socket.socketpair()
        with end, open(os.path.join(directory, f"{part.PRINTED}.{number}"), "ab") as printed:
            # It forks itself away at once, because Ray kills the children of an actor that ends.
            subprocess.run(
                program(part.__name__, *self._words, address),
                cwd="/",
                stdin=end.fileno(),
                stdout=printed,
                stderr=printed,
                env={name: text for name, text in os.environ.items() if name.endswith(part.DEVICES)},
                check=True,
            )
        threading.Thread(target=self._wait, daemon=True).start()

    def ask_to_stop(self) -> None:
        self._leash.send(part.STOP)

    def kill(self) -> None:
        self._leash.send(part.KILL)

    def _wait(self) -> None:
        """Free the GPUs once nothing of the job runs here; those of all nodes once nothing runs anywhere."""
        try:
            if not self._is_over():  # it was killed, so that another one must end what it has started
                subprocess.run(program(part.__name__, "--clear", *self._words), cwd="/", check=False)
            if self._words[1] == "0":
                import ray

                ray.util.remove_placement_group(self._group)  # which ends this actor
        finally:
            os._exit(0)  # also if Ray did not answer: the runner removes a group whose first actor is gone

    def _is_over(self) -> bool:
        with suppress(ConnectionError):  # which it is if requests were on their way when it was killed
            return self._leash.recv(1) == part.OVER
        return False
