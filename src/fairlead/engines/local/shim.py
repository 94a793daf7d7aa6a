"""Runs one lease and outlives the daemon. A program of its own (`programs.py`), which imports only the standard library.

It forks into the background, claims the lease, runs the job's command in a new process group and records its exit code.
A gang is several processes in that group, which begin and end together. The lock on `alive` is held by this process;
when the lock is free and there is no `exit.json`, it was killed. With `--foreground` it is the batch script of another
system's job: that system knows whether it lives, and its requests to stop are passed on.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NoReturn

from fairlead.engines.local import cgroups, proc
from fairlead.engines.local.members import MARK, Roll, claim_record, new_mark

LEASE, CLAIM, ALIVE, ASKED, EXIT, LOG, GONE = "lease.json", "claim", "alive", "asked", "exit.json", "log", "gone"
CANNOT_RUN = 126  # the exit code of shells for a command that could not be executed
CHECKPOINTED = 85  # as in fairlead.model.handshake
_TERM_S = 5.0  # between TERM and KILL for the rest of a gang of which one process failed
_POLL_S = 0.05
_LONGEST_WAIT_S = 3600.0  # the kernel takes no infinite time
_DRAFT, _END_BYTES = f"{EXIT}.draft", 256
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SPACE_S = 1.0  # between two attempts to record an exit code
ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_PARENT_DEATH_SIGNAL, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 36, 38  # PR_SET_PDEATHSIG and so on

# A shell that has set a trap waits for its child before it runs the trap, so that a job which is asked to stop can write
# its checkpoint. If the child then ends with an error or with CHECKPOINTED, that is the end of the script, even where it
# would ignore it (`train || true`, `while ! train`). A child that has finished is followed by the next command, which
# finds the stop file. The children themselves get the signal's usual meaning back.
_HEED = (
    "fairlead_code=$? fairlead_piped=${PIPESTATUS:-0}; "  # bash negates the first for `! train`; dash has no second
    '[ "$fairlead_code" != 0 ] || fairlead_code=$fairlead_piped; [ "$fairlead_code" = 0 ] || exit "$fairlead_code"'
)
_PREFACE = f"trap '{_HEED}' TERM USR1\nset -e\n"


def main(*words: str) -> int:
    """Run the lease of the directory that is the last word, after `--foreground` or nothing.

    In the background the result is 0, or else a refusal with the reason on standard error.
    """
    os.chdir(words[-1])
    with open(LEASE, encoding="utf-8") as file:
        plan = json.load(file)["plan"]
    if not os.path.isdir(plan["workdir"]):
        print(f"workdir {plan['workdir']} is not a directory; create it or name another", file=sys.stderr)
        return 1
    try:
        lock = os.open(ALIVE, os.O_CREAT | os.O_RDWR, 0o600)
        reserve_end()
        cgroups.make(plan["cgroups"])
    except OSError as error:
        print(f"cannot make the files and control groups of the lease: {error}", file=sys.stderr)
        return 1
    if "--foreground" in words[:-1]:
        return _run_as_batch_script(plan)
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


def _run_as_batch_script(plan: dict[str, Any]) -> int:
    """The exit code of the lease, or 0 if it was revoked."""
    adopt_orphans()
    plan["env"] = batch_environment(plan)
    plan["dies_with_script"] = True  # that system counts the lease as over when this process is gone
    code = _run(plan, forward=True)
    if code is not None:
        record_end(code)
    return code or 0


def batch_environment(plan: dict[str, Any]) -> dict[str, str]:
    """The job's variables, except where the other system has set its own since the submission, such as its devices."""
    submitted = plan.get("submitted", {})
    wanted: dict[str, str] = plan["env"]
    return wanted | {name: text for name, text in os.environ.items() if submitted.get(name) != text}


def detach() -> None:
    """Leave the terminal and the session of the daemon, and ignore signals, which are meant for the job."""
    os.setsid()
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    for ignored in ASKING:
        signal.signal(ignored, signal.SIG_IGN)


def adopt_orphans() -> None:
    """From now on orphans of the job become children of this process, and ends of children wait to be asked for."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    with suppress(OSError, AttributeError, ImportError):
        _prctl(_SUBREAPER)


def _prctl(property_: int, value: int = 1) -> None:
    """Set a property of this process."""
    import ctypes  # here, where nothing waits for it

    if ctypes.CDLL(None, use_errno=True).prctl(property_, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def reserve_end() -> None:
    """Take the space on disk that the exit code will need, before anything runs: a full disk starts no job."""
    with suppress(FileExistsError), open(_DRAFT, "xb") as file:
        file.write(b" " * _END_BYTES)
        file.flush()
        os.fsync(file.fileno())


def record_end(code: int) -> None:
    """Record the exit code, because a job without one is run again. Waits for space if there is none after all."""
    record = json.dumps({"fairlead": "exit/1", "code": code, "time_s": time.time()})
    while True:
        try:
            _write_end(record.ljust(_END_BYTES).encode())
            return
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
        time.sleep(_SPACE_S)


def _write_end(record: bytes) -> None:
    """Overwrite what was reserved, in place, and rename it."""
    draft = os.open(_DRAFT, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        if os.pwrite(draft, record, 0) < len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(draft)
    finally:
        os.close(draft)
    os.replace(_DRAFT, EXIT)
    _sync_folder(EXIT)


def _run(plan: dict[str, Any], *, forward: bool = False) -> int | None:
    """The exit code; None if another process owns the lease. It may forward requests to stop to the job."""
    gate, opener = os.pipe()
    # Blocked, so that signals stay pending for the children instead of being ignored.
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)
    mark = new_mark()
    children = _fork_all({**plan, "env": plan["env"] | {MARK: mark}}, gate, opener)
    os.close(gate)
    group = children[0]
    if not claim(CLAIM, claim_record(group, mark, plan["cgroups"])):
        os.close(opener)
        for child in children:
            os.waitpid(child, 0)
        return None
    os.write(opener, b"!" * len(children))
    os.close(opener)
    if forward:
        _forward_signals(group)
    is_tracked = forward or bool(plan["cgroups"])  # by the other system, or by the kernel
    code = wait_for_all(group, set(children), plan["grace_s"], is_tracked=is_tracked)
    finish(plan["cgroups"])
    return code


def _forward_signals(group: int) -> None:
    """From now on requests to stop reach the job, also those since the claim."""

    def ask(number: int, frame: object) -> None:
        with suppress(OSError):
            os.killpg(group, signal.SIGTERM)

    for number in ASKING:
        signal.signal(number, ask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)


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


def wait_for_all(group: int, left: set[int], grace_s: float, *, is_tracked: bool) -> int:
    """The first exit code that is not 0. It ends all ranks soon, because ranks that wait for a lost one never return.

    After an error the others have a few seconds. After a checkpoint, or if all were asked to stop anyway, they
    have their grace period: the rank that saves may be the last to exit. So may a program whose shell, such as a script
    within the script, did not wait for it. Unless the kernel tracks the processes of the job, a roll is kept of them.
    """
    code, give_up_s = 0, math.inf
    roll = Roll(is_tracked=is_tracked)
    while left:
        pid, status = _next_end(give_up_s, roll)
        if not pid:
            give_up_s = math.inf
            _signal(group, left, signal.SIGKILL)
        if pid not in left:
            continue  # an orphan of the job
        left.discard(pid)
        ended = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        if ended and not code:
            code = ended
            polite = code == CHECKPOINTED or os.path.exists(ASKED)
            give_up_s = time.monotonic() + (grace_s if polite else _TERM_S)
            if left and not polite:
                _signal(group, left, signal.SIGTERM)
    if code not in (0, CHECKPOINTED) and os.path.exists(ASKED) and give_up_s < math.inf:
        with suppress(ChildProcessError):  # nothing is left
            while _next_end(give_up_s, roll)[0]:
                pass
    return code


def _signal(group: int, ranks: set[int], number: signal.Signals) -> None:
    """Send a signal to the process group and to ranks that have left it."""
    with suppress(OSError):
        os.killpg(group, number)
    for pid in ranks:
        with suppress(OSError):
            if os.getpgid(pid) != group:
                os.kill(pid, number)


def _next_end(until_s: float, roll: Roll) -> tuple[int, int]:
    """The next child to end and its status; process 0 if there is none until then."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        left_s = until_s - time.monotonic()
        if pid or left_s <= 0:
            return pid, status
        _await_end(min(left_s, roll.keep()))


def _await_end(at_most_s: float) -> None:
    """Return once a child has ended, or earlier."""
    signal.sigtimedwait([signal.SIGCHLD], min(at_most_s, _LONGEST_WAIT_S))


def _become(plan: dict[str, Any]) -> NoReturn:
    """Replace this process by the job's shell, as the job's user."""
    try:
        log = os.open(LOG, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        cgroups.join(plan["cgroups"])
        become_user(plan)
        usual_signals()  # those since the claim arrive now
        if plan.get("dies_with_script"):
            _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        os.execve(plan["shell"][0], _words(plan["shell"], plan["setup"], plan["run"]), plan["env"])
    except BaseException as error:
        with suppress(OSError):
            os.write(2, f"fairlead: the command could not be executed: {error}\n".encode())
        os._exit(CANNOT_RUN)


def become_user(plan: dict[str, Any]) -> None:
    """Become the job's user with all its groups, in the job's directory. No program can give it more rights."""
    if plan.get("uid") is not None:
        os.setgroups(plan["groups"])
        os.setgid(plan["gid"])
        os.setuid(plan["uid"])
        _prctl(_NO_NEW_PRIVILEGES)
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


def finish(groups: Collection[str]) -> None:
    """After the job: say in its log why the kernel has killed it, and leave nothing of it behind."""
    if cgroups.ran_out_of_memory(groups):
        with suppress(OSError), open(LOG, "a", encoding="utf-8") as log:
            log.write("fairlead: the job reached its limit of memory (resources: memory), and was killed\n")
    clear_away(groups)


def clear_away(groups: Collection[str]) -> None:
    """End the remaining processes of the job, because its GPUs go to another one, and remove its control groups."""
    while True:
        cgroups.kill(groups)
        for process in filter(None, map(proc.read, proc.tree(os.getpid()))):
            proc.kill(process)
        if not _has_children() and not cgroups.is_populated(groups):
            cgroups.remove(groups)
            return
        _await_end(_POLL_S)


def _has_children() -> bool:
    """Whether children are left, after those that have ended were taken note of."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def claim(path: str, record: dict[str, Any]) -> bool:
    """Claim a lease by creating the file, atomically; False if another process was first."""
    draft = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        write_synced(draft, {"fairlead": "claim/1", **record})
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    _sync_folder(path)  # before anything runs: a power cut must not undo the claim
    return True


def write_synced(path: str, record: dict[str, Any]) -> None:
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
