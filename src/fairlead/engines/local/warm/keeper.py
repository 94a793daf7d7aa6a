"""Keeps the processes of one standby, and then supervises its lease as the shim does. A program like the shim.

What to start arrives over a socket whose other end is in the scheduler. While it waits, the end of that socket ends
the standby, whatever its processes do; once a lease is claimed, nothing depends on the scheduler any more.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from fairlead.engines.local import cgroups, shim
from fairlead.engines.local.members import MARK, claim_record, new_mark
from fairlead.engines.local.warm import loader

LOADED, REFUSED = b"loaded", b"refused: "
_CHECK_S = 5.0  # in which a standby must answer that its modules are unchanged
_IMPORT_S = 300.0  # in which it must be ready; the machine may be busy
_MEASURE_S = 0.5  # between two looks at its size
_MOST_OUTPUT = 1 << 20  # bytes that imports may print
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class StandbyProcess:
    """A process of the standby, and our end of the socket to it."""

    pid: int
    gate: socket.socket


class _GoneError(Exception):
    """The standby has no use any more; the reason is for the scheduler."""


def main(descriptor: str) -> int:
    os.set_inheritable(int(descriptor), False)
    control = socket.socket(fileno=int(descriptor))
    if os.fork():
        return 0
    shim.detach()
    shim.adopt_orphans()
    workers: list[StandbyProcess] = []
    order: dict[str, Any] = {"cgroups": {}}
    try:
        order = _order(control)
        cgroups.make(order["cgroups"])
        output = os.memfd_create("output")
        for _ in range(order["ranks"]):
            workers.append(_start(order, workers[0].pid if workers else 0, output))
        _wait_until_ready(control, workers, order, output)
        control.send(json.dumps({"pids": [worker.pid for worker in workers], "bytes": _resident(workers)}).encode())
        lease = _wait_for_lease(control, workers, order, output)
        os.chdir(lease)
        plan = _read_plan()
        messages = _messages(plan, order["mark"])
        _check_modules(workers)
        _claim(workers[0].pid, order)
    except (_GoneError, OSError, ValueError) as error:
        shim.clear_away(order["cgroups"])
        with suppress(OSError):
            control.send(REFUSED + str(error).encode()[:500])
        return 0
    _begin(messages, workers, output)
    with suppress(OSError):
        control.send(LOADED)
    control.close()
    ranks = {worker.pid for worker in workers}
    code = shim.wait_for_all(workers[0].pid, ranks, plan["grace_s"], is_tracked=bool(order["cgroups"]))
    shim.finish(order["cgroups"])
    shim.record_end(code)
    return 0


def _order(control: socket.socket) -> dict[str, Any]:
    """What to start, after the pause that it asks for."""
    order: dict[str, Any] = json.loads(_receive(control))
    if select.select([control], (), (), order["pause_s"])[0]:
        raise _GoneError("a lease came before the imports")
    return {**order, "mark": new_mark()}


def _receive(control: socket.socket) -> bytes:
    message = control.recv(loader.LARGEST)
    if not message:
        raise _GoneError("the scheduler has ended")
    return message


def _start(order: dict[str, Any], group: int, output: int) -> StandbyProcess:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent, pid = os.getpid(), os.fork()
    if not pid:
        _become(order, group, theirs, output, parent)
    with suppress(OSError):
        os.setpgid(pid, group or pid)
    theirs.close()
    ours.send(json.dumps({name: order[name] for name in ("modules", "path", "contexts")}).encode())
    return StandbyProcess(pid, ours)


def _become(order: dict[str, Any], group: int, gate: socket.socket, output: int, parent: int) -> NoReturn:
    """Replace this process by the job's interpreter, as the job's user."""
    try:
        os.setpgid(0, group)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.set_inheritable(gate.fileno(), True)
        cgroups.join(order["cgroups"])
        shim.become_user(order)
        _die_with(parent)
        shim.usual_signals()
        words = [*order["words"], loader.__file__, str(gate.fileno())]
        os.execve(order["interpreter"], words, order["env"] | {MARK: order["mark"]})
    except BaseException:
        os._exit(shim.CANNOT_RUN)


def _die_with(parent: int) -> None:
    """Have the kernel end this process with the keeper, even while it imports."""
    with suppress(OSError, AttributeError, ImportError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _wait_until_ready(
    control: socket.socket, workers: list[StandbyProcess], order: dict[str, Any], output: int
) -> None:
    give_up_s, left = time.monotonic() + _IMPORT_S, {worker.gate for worker in workers}
    while left:
        if time.monotonic() > give_up_s:
            raise _GoneError(f"the imports did not end within {_IMPORT_S:g} s")
        for speaks in select.select([control, *left], (), (), _MEASURE_S)[0]:
            if speaks is control:
                raise _GoneError("a lease came before the imports were done")
            if speaks.recv(loader.LARGEST) != loader.READY:
                raise _GoneError("a process of the standby ended during its imports")
            left.discard(speaks)
        _check_size(workers, order, output)


def _wait_for_lease(control: socket.socket, workers: list[StandbyProcess], order: dict[str, Any], output: int) -> str:
    gates = [worker.gate for worker in workers]
    while True:
        speaking = select.select([control, *gates], (), (), _MEASURE_S)[0]
        if any(gate in speaking for gate in gates):
            raise _GoneError("a process of the standby ended while it waited")
        if speaking:
            return _receive(control).decode()
        _check_size(workers, order, output)


def _check_size(workers: list[StandbyProcess], order: dict[str, Any], output: int) -> None:
    if _resident(workers) > order["most_bytes"]:
        raise _GoneError("the standby grew beyond its memory")
    if os.fstat(output).st_size > _MOST_OUTPUT:
        raise _GoneError("the imports of the standby print without end")


def _resident(workers: list[StandbyProcess]) -> int:
    """Resident bytes of all processes of the standby."""
    total = 0
    for worker in workers:
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{worker.pid}/statm", encoding="ascii") as file:
            total += int(file.read().split()[1]) * _PAGE
    return total


def _read_plan() -> dict[str, Any]:
    with open(shim.LEASE, encoding="utf-8") as file:
        plan: dict[str, Any] = json.load(file)["plan"]
    if not os.path.isdir(plan["workdir"]):
        raise _GoneError(f"workdir {plan['workdir']} is not a directory")
    return plan


def _messages(plan: dict[str, Any], mark: str) -> list[bytes]:
    """What each process needs in order to become the job, made before the claim because it may be too large."""
    setup = plan["setup"] and shim.shell_words(plan["shell"], plan["setup"])
    go = {**plan["python"], "workdir": plan["workdir"], "setup": setup}
    messages = [json.dumps({**go, "env": plan["env"] | extra | {MARK: mark}}).encode() for extra in plan["ranks"]]
    if max(map(len, messages)) > loader.LARGEST:
        raise _GoneError("the command and its environment are too large")
    return messages


def _check_modules(workers: list[StandbyProcess]) -> None:
    for worker in workers:
        worker.gate.settimeout(_CHECK_S)
        worker.gate.send(loader.CHECK)
    if any(worker.gate.recv(loader.LARGEST) != loader.FRESH for worker in workers):
        raise _GoneError("modules have changed since the standby imported them")


def _claim(group: int, order: dict[str, Any]) -> None:
    """Claim the lease of this directory for the processes of the standby. If this raises, nothing of it has begun."""
    lock = os.open(shim.ALIVE, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    shim.reserve_end()
    if not shim.claim(shim.CLAIM, {**claim_record(group, order["mark"], order["cgroups"]), "warm": True}):
        raise _GoneError("another process owns the lease")


def _begin(messages: list[bytes], workers: list[StandbyProcess], output: int) -> None:
    """Load the lease into the processes; what their imports printed is the beginning of its log."""
    log = os.open(shim.LOG, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(log, os.pread(output, _MOST_OUTPUT, 0))
    os.close(output)
    for worker, message in zip(workers, messages, strict=True):
        with suppress(OSError):  # it has died; its exit code is the lease's
            socket.send_fds(worker.gate, [message], [log])
        worker.gate.close()
    os.close(log)
