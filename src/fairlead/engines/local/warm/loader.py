"""The process of a standby: `python loader.py FD`, by the job's interpreter. Imports only the standard library.

It imports the job's modules, waits for a lease on the socket FD, and then is the job: with its arguments, environment,
directory and log, in the same process group and with the same files open as after a start by the shim.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

READY, FRESH, STALE, CHECK = b"ready", b"fresh", b"stale", b"check"
LARGEST = 1 << 17  # bytes of a message; what a socket takes at once
CANNOT_RUN = 126  # as in the shim
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_OF_SHELLS = ("PWD", "OLDPWD", "SHLVL", "_")


def main() -> None:
    gate = socket.socket(fileno=int(sys.argv[1]))
    order = json.loads(gate.recv(LARGEST))
    _prepare(order)
    files = _files()
    gate.send(READY)
    if gate.recv(LARGEST) != CHECK:
        return  # the keeper is gone
    gate.send(FRESH if _unchanged(files) else STALE)
    message, logs, _, _ = socket.recv_fds(gate, LARGEST, 1)
    gate.close()
    if not message:
        os._exit(CANNOT_RUN)  # the keeper was killed between the claim and this message
    _begin(json.loads(message), logs[0])


def _prepare(order: dict[str, Any]) -> None:
    """Import the modules as the job would; a missing one is left to the job."""
    sys.argv = [""]
    if not _is_safe_path():
        sys.path[0] = order["path"]  # instead of the folder of this file
    for name in order["modules"]:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    if order["contexts"]:
        _open_contexts()


def _is_safe_path() -> bool:
    """Whether the interpreter was asked not to look for modules beside the script."""
    return bool(getattr(sys.flags, "safe_path", False) or sys.flags.isolated)


def _open_contexts() -> None:
    """Open a CUDA context on each visible GPU, which takes seconds and some memory of the GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        for device in range(torch.cuda.device_count()):
            torch.empty(1, device=f"cuda:{device}")


def _files() -> dict[str, Any]:
    """The files of all imported modules with their times and sizes."""
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {path: _stamp(path) for path in paths if isinstance(path, str)}


def _unchanged(files: dict[str, Any]) -> bool:
    """Whether a start now would import the same code."""
    return all(_stamp(path) == stamp for path, stamp in files.items())


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def _begin(go: dict[str, Any], log: int) -> None:
    """Become the job."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    _outlive_keeper()
    _set_environment(go["env"])
    os.chdir(go["workdir"])
    if go["setup"] is not None:
        _set_up(go["setup"])
    sys.argv = [go["target"], *go["arguments"]]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = [*go["words"], *(["-m"] if go["is_module"] else []), *sys.argv]
    (_run_module if go["is_module"] else _run_script)(go["target"])


def _outlive_keeper() -> None:
    """A job outlives its keeper, as it outlives its shim."""
    with suppress(OSError, AttributeError, ImportError):
        import ctypes

        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, 0, 0, 0, 0)


def _set_environment(env: dict[str, str]) -> None:
    for name in os.environ.keys() - env.keys() - set(_OF_SHELLS):
        del os.environ[name]
    for name, value in env.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _set_up(words: list[str]) -> None:
    """Run the script of `setup`. As a shell would, wait for it if a signal arrives; an error ends the job."""
    signals = (signal.SIGTERM, signal.SIGUSR1)
    before = {number: signal.signal(number, lambda *_: None) for number in signals}
    code = subprocess.call(words, restore_signals=True)
    if code:
        os._exit(code if code > 0 else 128 - code)
    for number, handler in before.items():
        signal.signal(number, handler)


def _run_module(name: str) -> None:
    module = types.ModuleType("__main__")
    module.__dict__.update(__builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"] = module
    run: Callable[[str], object] = vars(runpy)["_run_module_as_main"]  # what the interpreter calls for -m
    _exit_as_interpreters_do(lambda: run(name))


def _run_script(path: str) -> None:
    path = os.path.abspath(path)
    module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    module.__dict__.update(
        __file__=path, __builtins__=__builtins__, __cached__=None, __loader__=loader, __annotations__={}
    )
    sys.modules["__main__"] = module

    def run() -> None:
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)

    _exit_as_interpreters_do(run)


def _exit_as_interpreters_do(run: Callable[[], object]) -> None:
    """Run the job; after an error show its own part of the traceback and exit with the interpreter's code."""
    try:
        run()
    except SystemExit:
        raise
    except BaseException as error:
        failure = error
    else:
        return
    trace, here = failure.__traceback__, __file__
    while trace is not None and trace.tb_frame.f_code.co_filename == here:
        trace = trace.tb_next  # an interpreter shows no frames of its own
    failure.__traceback__ = trace
    sys.excepthook(type(failure), failure, trace)
    sys.exit(128 + signal.SIGINT if isinstance(failure, KeyboardInterrupt) else 1)


if __name__ == "__main__":
    main()
