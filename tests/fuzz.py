"""Made-up requests against a real service, single ones and long chains by the links of the OpenAPI document.

`python tests/fuzz.py SECONDS` starts a service that runs no jobs (`--engine pretend`) in a temporary directory, sends
requests for that long, and fails if an answer is not as the document says, or if the service is not in order after that.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
START_S = 120.0
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
# Requests may revoke any token, also their own, and an audit starts a process.
LEFT_OUT = ("--exclude-path", "/v1/audit", "--exclude-operation-id", "revoke_token_v1_tokens__id__delete")


@contextmanager
def service(folder: Path) -> Iterator[tuple[str, str]]:
    """The address of a service and an admin token for it."""
    saved = folder / "credentials.json"
    environment = {**os.environ, "FAIRLEAD_CREDENTIALS": str(saved)}
    words = ("serve", "--cluster", "v100:8,k80:4", "--engine", "pretend", "--port", "0", "--round", "1s")
    command = [sys.executable, "-m", "fairlead.cli.main", *words, "--state", str(folder / "state")]
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        give_up_s = time.monotonic() + START_S
        while not saved.exists() and daemon.poll() is None and time.monotonic() < give_up_s:
            time.sleep(0.05)
        if not saved.exists():
            raise SystemExit(f"the service did not start:\n{(folder / 'log').read_text()}")
        credentials = json.loads(saved.read_text())
        yield credentials["url"], credentials["token"]
        if daemon.poll() is not None:
            raise SystemExit(f"the service ended with code {daemon.returncode}:\n{(folder / 'log').read_text()}")
    finally:
        if daemon.poll() is None:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(START_S)


def fuzz(url: str, token: str, seconds: float, folder: Path) -> int:
    """The exit code of schemathesis after its requests: a third of the time single ones, then chains."""
    single = _run(url, token, seconds / 3, folder, "--phases", "fuzzing", "--max-examples", "100")
    return _run(url, token, 2 * seconds / 3, folder, "--phases", "stateful", "--max-examples", "100000") or single


def _run(url: str, token: str, seconds: float, folder: Path, *more: str) -> int:
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/v1/openapi.json"),
        *("--header", f"Authorization: Bearer {token}", "--checks", CHECKS, "--max-time", f"{seconds:g}"),
        *("--request-timeout", "60", "--no-color", *LEFT_OUT, *more),
    ]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": str(HERE)}
    return subprocess.run(command, env=environment, cwd=folder, check=False).returncode


def main(seconds: float) -> int:
    with tempfile.TemporaryDirectory(prefix="fairlead-fuzz-") as name, service(Path(name)) as (url, token):
        code = fuzz(url, token, seconds, Path(name))
        complaints = [line for line in (Path(name) / "log").read_text().splitlines() if "Traceback" in line]
        print(f"tracebacks in the service's log: {len(complaints)}")
        return code or bool(complaints)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
