"""The processes of a lease on one of its nodes: the program that an actor starts. Imports only the standard library.

The commands are run by a shim below this process. The parts of a gang see each other through the directory of the
lease, which is on a file system that their nodes share:

    LEASE/claim  asked  log  exit.json        as of every lease; the part of the first node writes them
    LEASE/parts/N/  ready  claim  asked  log  exit.json  lost  followed

They begin together, because the first part claims the lease when all are ready, and the others wait for the claim. They
end together, because each looks for the ends of the others. Standard input is a leash, a socket to the actor, through
which its requests arrive. When it is closed, the actor is gone, and with it the reservation of the GPUs: the job is asked
to stop, and killed after its grace period.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from fairlead.engines.local import members, proc, shim
from fairlead.engines.local.programs import program

DEVICES = "VISIBLE_DEVICES"  # the end of the names of the variables in which Ray says which devices are ours
PRINTED = "ray.log"  # what this program has to complain about
PARTS, READY, LOST, FOLLOWED, VANISHED = "parts", "ready", "lost", "followed", -1
STOP, KILL, OVER = b"s", b"k", b"o"  # on the leash
RAY_ENDS_S = 90.0  # for a node to notice that the head is gone for good, which takes a minute
_PAUSE_S = 0.1
_LOOK_S = 1.0  # between two looks at the other parts, on a file system that all nodes share
_TERM_S = 5.0  # between TERM and KILL if a part has failed, or is lost


def main(*words: str) -> int:
    """Run a part of the lease: directory, number and address of the first node; or `--clear` what is left of one."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # threads of Ray block some
    if words[0] == "--clear":
        return _clear(_Part(words[1], int(words[2])))
    if os.fork():
        return 0
    os.setsid()
    for number in shim.ASKING:
        signal.signal(number, signal.SIG_IGN)
    _run(_Part(words[0], int(words[1])), _Leash(), words[2])
    return 0


def _run(part: _Part, leash: _Leash, address: str) -> None:
    if not part.is_gang or _begin_together(part, leash, address):
        words = program(shim.__name__, "--foreground", part.directory)
        child = subprocess.Popen(words, cwd="/", stdin=subprocess.DEVNULL, env=dict(os.environ))
        log = _Log(part) if part.is_gang and part.number == 0 else None
        _watch(part, leash, child, log)
        if log is not None:
            _conclude(part, leash, log)
    leash.send(OVER)


class _Leash:
    """The socket to the actor, which is standard input."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=0)
        self._socket.setblocking(False)
        self.is_off = False

    def requests(self) -> bytes:
        """What has arrived since the last call."""
        try:
            words = self._socket.recv(100)
        except BlockingIOError:
            return b""
        except ConnectionError:
            words = b""
        self.is_off = self.is_off or not words
        return words

    def send(self, word: bytes) -> None:
        with suppress(OSError):
            self._socket.send(word)


class _Part:
    """Where the files of a part are; those of a job of one process are in the directory of the lease."""

    def __init__(self, lease: str, number: int) -> None:
        self.lease, self.number = lease, number
        with open(os.path.join(lease, shim.LEASE), encoding="utf-8") as file:
            record = json.load(file)
        self.plan: dict[str, Any] = record["plan"]
        self.log_bytes: int | None = record["log_bytes"]
        self.others = [other for other in range(len(self.plan["parts"])) if other != number]
        self.is_gang = any(self.plan["parts"][0])  # its ranks have variables of their own
        self.directory = part_directory(lease, number) if self.is_gang else lease

    def file(self, number: int, name: str) -> str:
        return os.path.join(part_directory(self.lease, number), name)


def part_directory(lease: str, number: int) -> str:
    return os.path.join(lease, PARTS, str(number))


def end_of(directory: str) -> int | None:
    """The exit code of a part; VANISHED if its end is not known, None if it has not ended."""
    names = _names(directory)
    if LOST in names:
        return VANISHED
    return int(_read(os.path.join(directory, shim.EXIT))["code"]) if shim.EXIT in names else None


# ---- the beginning -------------------------------------------------------------------------------------------------


def _begin_together(part: _Part, leash: _Leash, address: str) -> bool:
    """Whether the lease has begun; then the plan of this part is written. Returns False if it was revoked."""
    here = {"address": address, "port": _free_port()}
    shim.claim(part.file(part.number, READY), here)
    if part.number == 0:
        while not all(READY in _names(part_directory(part.lease, other)) for other in part.others):
            if _is_given_up(leash) or shim.CLAIM in _names(part.lease):
                return False
            time.sleep(_PAUSE_S)
        if not shim.claim(os.path.join(part.lease, shim.CLAIM), here):
            return False
    while shim.CLAIM not in _names(part.lease):
        if _is_given_up(leash):
            return False
        time.sleep(_PAUSE_S)
    meeting = _read(os.path.join(part.lease, shim.CLAIM))
    if "revoked" in meeting:
        return False
    where = {"MASTER_ADDR": str(meeting["address"]), "MASTER_PORT": str(meeting["port"])}
    ranks = [rank | where for rank in part.plan["parts"][part.number]]
    shim.write_synced(os.path.join(part.directory, shim.LEASE), {"plan": {**part.plan, "ranks": ranks}})
    return True


def _is_given_up(leash: _Leash) -> bool:
    return KILL in leash.requests() or leash.is_off


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


# ---- while it runs -------------------------------------------------------------------------------------------------


def _watch(part: _Part, leash: _Leash, child: subprocess.Popen[bytes], log: _Log | None) -> None:
    """Pass requests on until the part has ended, and end it if its actor, or another part, is gone."""
    kill_s, looked_s = math.inf, -math.inf
    while child.poll() is None:
        requests, now_s = leash.requests(), time.monotonic()
        if STOP in requests:
            child.terminate()
        if KILL in requests:
            kill_s = now_s
        if now_s >= looked_s + _LOOK_S:
            looked_s = now_s
            wait_s = _time_to_end(part, leash, undecided=kill_s == math.inf)
            if wait_s is not None and now_s + wait_s < kill_s:
                kill_s = now_s + wait_s
                _note(os.path.join(part.directory, FOLLOWED))
                child.terminate()
            if log is not None:
                log.merge()
        if now_s >= kill_s:
            members.kill_all(part.directory, _claim(part))
        time.sleep(_PAUSE_S)
    if shim.EXIT not in _names(part.directory) and shim.CLAIM in _names(part.directory):
        _clear(part)  # the shim was killed


def _time_to_end(part: _Part, leash: _Leash, *, undecided: bool) -> float | None:
    """The seconds that the job has to end; None if there is no reason to, or no other than that which was decided on."""
    if LOST in _names(part.directory):
        return _TERM_S  # as the other parts have, so that nothing of the gang runs when its GPUs are freed
    if not undecided:
        return None
    if leash.is_off:
        for directory in (part.lease, part.directory):  # so that its end does not count as a failure
            _note(os.path.join(directory, shim.ASKED))
        return float(part.plan["grace_s"])
    ends = [end for other in part.others if (end := end_of(part_directory(part.lease, other)))]
    if not ends:
        return None
    polite = ends[0] == shim.CHECKPOINTED or shim.ASKED in _names(part.lease)
    return float(part.plan["grace_s"]) if polite else _TERM_S


def _claim(part: _Part) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        return _read(os.path.join(part.directory, shim.CLAIM))
    return {}


def _clear(part: _Part) -> int:
    """End what is left of a part whose programs were killed. Its exit code will never be known."""
    claim = _claim(part)
    supervisor = claim.get("supervisor")
    if supervisor and claim.get("boot") == proc.boot() and proc.born(supervisor) == claim.get("supervisor_born"):
        with suppress(OSError):
            os.kill(supervisor, signal.SIGKILL)
    while members.kill_all(part.directory, claim):
        time.sleep(_PAUSE_S)
    _note(os.path.join(part.directory, LOST))
    return 0


# ---- the end of a gang ---------------------------------------------------------------------------------------------


class _Log:
    """The log of a gang: a copy of those of its parts, made by one process, because appends of several nodes may collide."""

    def __init__(self, part: _Part) -> None:
        self._paths = [part.file(number, shim.LOG) for number in range(len(part.others) + 1)]
        self._offsets = [0] * len(self._paths)
        self._to = os.open(os.path.join(part.lease, shim.LOG), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._most = math.inf if part.log_bytes is None else part.log_bytes

    def merge(self, *, whole_lines: bool = True) -> None:
        for number, path in enumerate(self._paths):
            with suppress(OSError), open(path, "rb") as file:
                file.seek(self._offsets[number])
                new = file.read()
                if whole_lines:
                    new = new[: new.rfind(b"\n") + 1]
                os.write(self._to, new)
                self._offsets[number] += len(new)
                if os.fstat(file.fileno()).st_size > self._most:  # beyond what the log of the lease may have
                    os.truncate(path, 0)
                    self._offsets[number] = 0

    def finish(self) -> None:
        """Copy the rest, and remove what was copied."""
        self.merge(whole_lines=False)
        for path in self._paths:
            with suppress(OSError):
                os.unlink(path)


def _conclude(part: _Part, leash: _Leash, log: _Log) -> None:
    """Wait for the other parts, and record how the lease ended.

    If the actor is gone, so are those of the other parts, at the latest when they notice that Ray has ended.
    """
    give_up_s = math.inf
    directories = [part_directory(part.lease, number) for number in sorted((part.number, *part.others))]
    while not _all_known(ends := [end_of(directory) for directory in directories]):
        leash.requests()
        if leash.is_off and give_up_s == math.inf:
            give_up_s = time.monotonic() + part.plan["grace_s"] + RAY_ENDS_S
        if time.monotonic() >= give_up_s:
            return
        time.sleep(_PAUSE_S)
    _wait_for_lost([directory for directory, end in zip(directories, ends, strict=True) if end == VANISHED])
    log.finish()
    os.chdir(part.lease)
    if VANISHED in ends:
        open(LOST, "w").close()
    else:
        followed = [FOLLOWED in _names(directory) for directory in directories]
        shim.record_end(_first_error(ends, followed))


def _wait_for_lost(directories: Sequence[str]) -> None:
    """Wait until the processes of lost parts have ended: those whose actor alone is gone live for a while."""
    until_s = time.monotonic() + _TERM_S + 2 * _LOOK_S
    while time.monotonic() < until_s and not all(shim.EXIT in _names(directory) for directory in directories):
        time.sleep(_PAUSE_S)


def _all_known(ends: Iterable[int | None]) -> bool:
    return None not in list(ends)


def _first_error(ends: Sequence[int | None], followed: Sequence[bool]) -> int:
    """The exit code of a part that failed by itself, rather than of one that was ended because another had failed."""
    by_themselves = [end for end, follows in zip(ends, followed, strict=True) if not follows]
    return next((end for end in (*by_themselves, *ends) if end), 0)


def _note(path: str) -> None:
    """Create a file without content. A full disk or a missing directory must not end who watches over processes."""
    with suppress(OSError):
        open(path, "a").close()


def _names(directory: str) -> list[str]:
    """The names in a directory as they are now: a file system over the network answers that one from no cache."""
    with suppress(OSError):
        return os.listdir(directory)
    return []


def _read(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        record: dict[str, Any] = json.load(file)
    return record


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
