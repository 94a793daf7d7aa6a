"""Fifty open dashboards of a service with 12,000 jobs and 2,000 GPUs: page times, decisions with and without them, memory.

Each dashboard does what the script of the page does: it keeps a stream of ticks open, and loads its page again after
each of them. All of them are threads of one process, on the same cores as the service.
"""

from __future__ import annotations

import http.client
import multiprocessing
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.live import CLUSTER, JOBS, POLICY, TENANTS, get, serving, together, wait_until_taken
from fairlead.service.client import Client

DASHBOARDS = 50
PER_TOKEN = 10  # a token may have 32 streams
PHASE_S = 60.0
PAGES = ("/", "/queue", "/tenants", "/decisions")
FIRST_S = 1.0  # target of the first page


def run() -> None:
    """Decisions and pages without dashboards, then with fifty of them."""
    print(f"{JOBS:,} jobs of {TENANTS} tenants on {CLUSTER}, policy {POLICY}; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with serving(state, kill=True, estimates=0.0) as port:
            together(port)
            wait_until_taken(port)
            print(f"  {get(port, '/v1/status')['jobs']}", flush=True)
            tokens = [_token(state, port, k) for k in range(DASHBOARDS // PER_TOKEN)]
            before = _watch(port, state, PHASE_S)
            print(f"without dashboards: {_words(before)}", flush=True)
            stop = multiprocessing.Event()
            results: multiprocessing.Queue[dict[str, list[float]]] = multiprocessing.Queue()
            clients = multiprocessing.Process(target=_dashboards, args=(port, tokens, stop, results))
            clients.start()
            after = _watch(port, state, PHASE_S)
            stop.set()
            loads = results.get(timeout=120)
            clients.join()
            print(f"with {DASHBOARDS} dashboards: {_words(after)}", flush=True)
            _print_loads(loads)
            time.sleep(10)
            print(f"API process 10 s after they have left: {_memory_mib(state):.0f} MiB")


def _token(state: Path, port: int, number: int) -> str:
    client = Client.saved_in(state.parent / "credentials.json")
    made = Client(f"http://127.0.0.1:{port}", client.token).post("/tokens", {"name": f"d{number}", "role": "viewer"})
    return str(made["token"])


def _watch(port: int, state: Path, seconds: float) -> dict[str, Any]:
    """Durations of the decisions of this time, and the resident size and CPU time of the API process."""
    decisions: list[float] = []
    cpu_s, largest_mib, until_s = _cpu_s(state), 0.0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        decision_s = get(port, "/v1/status")["scheduler"]["decision_s"]
        if not decisions or decision_s != decisions[-1]:
            decisions.append(decision_s)
        largest_mib = max(largest_mib, _memory_mib(state))
        time.sleep(0.5)
    decisions.sort()
    return {"decisions_s": decisions, "memory_mib": largest_mib, "cpu": (_cpu_s(state) - cpu_s) / seconds}


def _words(phase: dict[str, Any]) -> str:
    times_s = phase["decisions_s"]
    middle_s, worst_s = times_s[len(times_s) // 2], times_s[-1]
    return (
        f"{len(times_s)} decisions, p50 {middle_s:.3f} s, slowest {worst_s:.3f} s; API process {phase['memory_mib']:.0f} MiB "
        f"at most, {phase['cpu']:.2f} CPUs"
    )


def _print_loads(loads: dict[str, list[float]]) -> None:
    for name, times_s in loads.items():
        times_s.sort()
        middle_s, worst_s = times_s[len(times_s) // 2], times_s[int(0.99 * len(times_s))]
        target = f" (target {FIRST_S:g} s: {'met' if worst_s < FIRST_S else 'MISSED'})" if name == "first page" else ""
        print(
            f"{name}: {len(times_s)} loads, p50 {middle_s * 1e3:.0f} ms, p99 {worst_s * 1e3:.0f} ms{target}", flush=True
        )


def _dashboards(port: int, tokens: list[str], stop: Any, results: Any) -> None:
    loads: dict[str, list[float]] = {"first page": [], **{path: [] for path in PAGES}}
    threads = [
        threading.Thread(target=_dashboard, args=(port, tokens[k // PER_TOKEN], PAGES[k % len(PAGES)], stop, loads))
        for k in range(DASHBOARDS)
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.1)  # people do not all come in the same moment
    for thread in threads:
        thread.join()
    results.put(loads)


def _dashboard(port: int, token: str, path: str, stop: Any, loads: dict[str, list[float]]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    origin = {"Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/sign-in", urlencode({"token": token}), origin)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    cookie = {"Cookie": answer.headers["set-cookie"].split(";")[0], "Accept-Encoding": "gzip"}
    loads["first page"].append(_load(port, path, cookie))
    ticks = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    ticks.request("GET", "/live", headers=cookie)
    stream = ticks.getresponse()
    assert stream.status == 200, stream.status
    while not stop.is_set():
        if stream.readline().startswith(b"event: tick"):
            loads[path].append(_load(port, path, cookie))
    ticks.close()


def _load(port: int, path: str, cookie: dict[str, str]) -> float:
    """How long the page takes, with a new connection, because the service closes idle ones."""
    began_s = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path, headers=cookie)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200, (path, answer.status)
    return time.perf_counter() - began_s


def _pid(state: Path) -> int:
    return int((state / "service.lock").read_text(encoding="ascii"))


def _memory_mib(state: Path) -> float:
    lines = Path(f"/proc/{_pid(state)}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _cpu_s(state: Path) -> float:
    fields = Path(f"/proc/{_pid(state)}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    run()
