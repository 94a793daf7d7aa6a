"""Runs one lease and outlives the daemon: `python -I -S shim.py DIRECTORY`. Imports only the standard library.

It forks into the background, claims the lease, runs the job's command in a new process group and records its exit code.
A gang is several processes in that group, which begin and end together. The lock on `alive` is held by this process;
when the lock is free and there is no `exit.json`, it was killed.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

LEASE, CLAIM, ALIVE, ASKED, EXIT, LOG = "lease.json", "claim", "alive", "asked", "exit.json", "log"
CANNOT_RUN = 126  # the exit code of shells for a command that could not be executed
CHECKPOINTED = 85  # as in fairlead.model.handshake
_TERM_S = 5.0  # between TERM and KILL for the rest of a gang of which one process failed
_POLL_S = 0.05
ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER

# A shell that has set a trap waits for its child before it continues, so that a job which is asked to stop can write its
# checkpoint and its exit code is the script's. The children themselves get the signal's usual meaning back.
_PREFACE = "trap : TERM USR1\nset -e\n"


def main(directory: str) -> int:
    """Start the lease in the background; the result is 0, or else a refusal with the reason on standard error."""
    os.chdir(directory)
    with open(LEASE, encoding="utf-8") as file:
        plan = json.load(file)["plan"]
    if not os.path.isdir(plan["workdir"]):
        print(f"workdir {plan['workdir']} is not a directory; create it or name another", file=sys.stderr)
        return 1
    lock = os.open(ALIVE, os.O_CREAT | os.O_RDWR, 0o600)
    if os.fork():
        return 0
    detach()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 0  # another process runs it already
    adopt_orphans()
    code = _run(plan)
    if code is not None:
        record_end(code)
    return 0


def detach() -> None:
    """Leave the terminal and the session of the daemon, and ignore signals, which are meant for the job."""
    os.setsid()
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    for ignored in ASKING:
        signal.signal(ignored, signal.SIG_IGN)


def adopt_orphans() -> None:
    """From now on orphans of the job become children of this process."""
    with suppress(OSError, AttributeError, ImportError):
        import ctypes  # here, where nothing waits for it

        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def record_end(code: int) -> None:
    _write_whole(EXIT, {"fairlead": "exit/1", "code": code, "time_s": time.time()})


def _run(plan: dict[str, Any]) -> int | None:
    """The exit code; None if another process owns the lease."""
    gate, opener = os.pipe()
    # Blocked, so that signals stay pending for the children instead of being ignored.
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)
    children = _fork_all(plan, gate, opener)
    os.close(gate)
    group = children[0]
    if not claim(CLAIM, {"group": group, "born": born(group), "boot": boot()}):
        os.close(opener)
        for child in children:
            os.waitpid(child, 0)
        return None
    os.write(opener, b"!" * len(children))
    os.close(opener)
    code = wait_for_all(group, set(children), plan["grace_s"])
    clear_away(group)
    return code


def _fork_all(plan: dict[str, Any], gate: int, opener: int) -> list[int]:
    """One process for each rank, all in the group of the first. They wait at the gate until the lease is ours."""
    children: list[int] = []
    for extra in plan["ranks"]:
        group = children[0] if children else 0
        child = os.fork()
        if not child:
            os.setpgid(0, group)
            os.close(opener)
            if not os.read(gate, 1):
                os._exit(0)  # the lease is not ours, or the parent is gone
            _become({**plan, "env": plan["env"] | extra})
        with suppress(OSError):
            os.setpgid(child, group or child)
        children.append(child)
    return children


def wait_for_all(group: int, left: set[int], grace_s: float) -> int:
    """The first exit code that is not 0. It ends all ranks soon, because ranks that wait for a lost one never return.

    After an error the others have a few seconds. After a checkpoint, or if all were asked to stop anyway, they
    have their grace period: the rank that saves may be the last to exit.
    """
    code, give_up_s = 0, math.inf
    while left:
        pid, status = _next_end(give_up_s)
        if not pid:
            give_up_s = math.inf
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        if pid not in left:
            continue  # an orphan of the job
        left.discard(pid)
        ended = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        if ended and not code:
            code = ended
            polite = code == CHECKPOINTED or os.path.exists(ASKED)
            give_up_s = time.monotonic() + (grace_s if polite else _TERM_S)
            if left and not polite:
                with suppress(OSError):
                    os.killpg(group, signal.SIGTERM)
    return code


def _next_end(give_up_s: float) -> tuple[int, int]:
    """The next process to end and its status; process 0 once the time is over."""
    if give_up_s == math.inf:
        return os.waitpid(-1, 0)
    while time.monotonic() < give_up_s:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            return pid, status
        time.sleep(_POLL_S)
    return 0, 0


def _become(plan: dict[str, Any]) -> NoReturn:
    """Replace this process by the job's shell, as the job's user."""
    try:
        log = os.open(LOG, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        become_user(plan)
        usual_signals()  # those since the claim arrive now
        os.execve(plan["shell"][0], _words(plan["shell"], plan["setup"], plan["run"]), plan["env"])
    except BaseException as error:
        with suppress(OSError):
            os.write(2, f"fairlead: the command could not be executed: {error}\n".encode())
        os._exit(CANNOT_RUN)


def become_user(plan: dict[str, Any]) -> None:
    """Become the job's user, in the job's directory."""
    if plan.get("uid") is not None:
        os.setgroups([])
        os.setgid(plan["gid"])
        os.setuid(plan["uid"])
    os.umask(0o077)
    os.chdir(plan["workdir"])


def usual_signals() -> None:
    """Give signals their usual meaning back, and let those arrive that were blocked."""
    for usual in (*ASKING, signal.SIGPIPE):
        signal.signal(usual, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _words(shell: list[str], setup: str | None, run: str) -> list[str]:
    """The command line of a shell for `run`, or for `setup` and then `run`."""
    if setup is None:
        return shell_words(shell, run)
    each = " ".join([*shell, "-c"])
    return [*shell, "-c", f'{_PREFACE}{each} "$1"\n{each} "$2"', "fairlead", _PREFACE + setup, _PREFACE + run]


def shell_words(shell: list[str], script: str) -> list[str]:
    """The command line of a shell for one script."""
    return [*shell, "-c", _PREFACE + script]


def clear_away(group: int) -> None:
    """End the remaining processes of the job, because its GPUs go to another one."""
    with suppress(OSError):
        os.killpg(group, signal.SIGKILL)
    me = os.getpid()
    while True:
        try:
            with open(f"/proc/{me}/task/{me}/children", encoding="ascii") as file:
                left = [int(pid) for pid in file.read().split()]
        except OSError:
            left = []
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def claim(path: str, record: dict[str, Any]) -> bool:
    """Claim a lease by creating the file, atomically; False if another process was first."""
    draft = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        _write_synced(draft, {"fairlead": "claim/1", **record})
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    _sync_folder(path)  # before anything runs: a power cut must not undo the claim
    return True


def born(pid: int) -> int | None:
    """The start time of a process in ticks since boot, which differs if its number is reused; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def boot() -> str | None:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def _write_whole(path: str, record: dict[str, Any]) -> None:
    draft = f"{path}.draft"
    _write_synced(draft, record)
    os.replace(draft, path)
    _sync_folder(path)


def _write_synced(path: str, record: dict[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: str) -> None:
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
