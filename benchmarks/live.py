"""The service under load: 10,000 queued jobs of 100 tenants, 2,000 simulated GPUs, over HTTP on this machine.

Clients are processes of their own on the same cores as the service, so that what they cost is in these numbers too.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CLUSTER = "h100:200x8,a100:400x8,v100:400x8,p100:400x8,t4:400x8,k80:200x8"  # 2,000 GPUs
POLICY = "oef-coop"
JOBS, TENANTS = 12_000, 100  # about 2,000 of the jobs run, the others wait
PROCESSES, THREADS = 2, 16  # of clients; each waits for its answer before it asks again
MODELS = ("resnet-50", "bert", "a-model-of-our-own", "transformer")
READ_S = 15.0
SERVE = """
import sys
from pathlib import Path
from fairlead.model.cluster import parse_short_form
from fairlead.service.process.daemon import ServiceOptions, serve
from fairlead.service.api.limits import Limits
from fairlead.service.process.scheduler import SchedulerOptions
from fairlead.traces.profiles import load_default_profile
state, port, cluster, policy, estimates, round_s = sys.argv[1:]
serve(ServiceOptions(parse_short_form(cluster), load_default_profile(), Path(state), port=int(port), policy=policy,
              plan=SchedulerOptions(engine="pretend", round_s=float(round_s)), limits=Limits(requests_per_s=1e9, burst=1e9),
              estimates=float(estimates)))
"""


def run() -> None:
    """Wall clock for what a user waits for, and CPU time beside it: the one grows with what else the machine does."""
    print(f"{JOBS:,} jobs of {TENANTS} tenants on {CLUSTER}, policy {POLICY}; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # upkeep may still end
        state = Path(folder) / "state"
        with serving(state, kill=True) as port:
            _measure_submits(port, state)
            wait_until_taken(port)
            print(f"  then {get(port, '/v1/status')['jobs']}")
            _measure_reads(port, state)
            scheduler = get(port, "/v1/status")["scheduler"]
            slowest_s, last_s = scheduler["slowest_decision_s"], scheduler["decision_s"]
            print(
                f"decision, news to commit: slowest {slowest_s:.2f} s, last {last_s:.2f} s (target 2 s: {_met(slowest_s < 2)})"
            )
        for after in ("kill -9", "a clean stop"):
            began_s = time.perf_counter()
            with serving(state) as port:
                took_s = time.perf_counter() - began_s
                start_s = get(port, "/v1/status")["scheduler"]["start_s"]
                print(
                    f"restart after {after}: {took_s:.2f} s until it answers (target 5 s: {_met(took_s < 5)}), of it {start_s:.2f} s to "
                    f"load and to reconcile; {_cpu_s(state, 'service') + _cpu_s(state, 'scheduler'):.2f} s CPU in both processes",
                    flush=True,
                )


def _measure_submits(port: int, state: Path) -> None:
    began_s, before_s = time.perf_counter(), _cpu_s(state, "service")
    together(port)
    rate = JOBS / (time.perf_counter() - began_s)
    cpu_ms = (_cpu_s(state, "service") - before_s) / JOBS * 1e3
    print(
        f"submits, each durable before its answer: {rate:,.0f} a second (target 500: {_met(rate >= 500)}); "
        f"{cpu_ms:.2f} ms CPU each in the API process",
        flush=True,
    )


def _measure_reads(port: int, state: Path) -> None:
    before_s = _cpu_s(state, "service")
    times = _read_while_deciding(port)
    for path, taken_s in times.items():
        worst_s = taken_s[int(0.99 * len(taken_s))]
        shown = f"p50 {taken_s[len(taken_s) // 2] * 1e3:.1f} ms, p99 {worst_s * 1e3:.1f} ms of {len(taken_s)}"
        print(f"read {path}: {shown} (target p99 100 ms: {_met(worst_s < 0.1)})", flush=True)
    cpu_ms = (_cpu_s(state, "service") - before_s) / sum(map(len, times.values())) * 1e3
    print(f"  {cpu_ms:.1f} ms CPU a read on average in the API process")


@contextmanager
def serving(state: Path, *, kill: bool = False, estimates: float = 0.1, round_s: float = 5.0) -> Iterator[int]:
    """`kill` ends both processes with -9; `estimates` is the part of a CPU for start estimates."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    os.environ["FAIRLEAD_CREDENTIALS"] = str(state.parent / "credentials.json")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(state), str(port), CLUSTER, POLICY, str(estimates), str(round_s)],
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait_until_up(port, process)
        yield port
    finally:
        if kill:
            os.kill(_pid(state, "scheduler"), signal.SIGKILL)
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        process.wait()


def _pid(state: Path, who: str) -> int:
    return int((state / f"{who}.lock").read_text(encoding="ascii"))


def _cpu_s(state: Path, who: str) -> float:
    """User and system time of the process so far."""
    fields = Path(f"/proc/{_pid(state, who)}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def submit(port: int, number: int, of: int, jobs: int) -> None:
    connection, headers = http.client.HTTPConnection("127.0.0.1", port), _headers()
    for i in range(number, jobs, of):
        job = {
            "name": f"job-{i}",
            "tenant": f"tenant-{i % TENANTS}",
            "model": MODELS[i % len(MODELS)],
            "run": "sleep 36000",
        }
        job["resources"] = {"gpus": 1 + i % 4 // 3}  # type: ignore[assignment]
        connection.request("POST", "/v1/jobs", json.dumps(job), headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 201, answer.status
    connection.close()


def _submit_all(port: int, number: int) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        of = PROCESSES * THREADS
        done = [pool.submit(submit, port, number * THREADS + thread, of, JOBS) for thread in range(THREADS)]
        for one in done:
            one.result()


def together(port: int) -> None:
    workers = [multiprocessing.Process(target=_submit_all, args=(port, number)) for number in range(PROCESSES)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0, "a client failed"


def _read_while_deciding(port: int) -> dict[str, list[float]]:
    """Reads one after another; an arrival now and then and short rounds keep the scheduler deciding."""
    connection, headers = http.client.HTTPConnection("127.0.0.1", port), _headers()
    paths = ("/v1/jobs/j500", "/v1/jobs?limit=100", "/v1/jobs?phase=running&limit=100", "/v1/status", "/v1/shares")
    times: dict[str, list[float]] = {path: [] for path in paths}
    give_up_s, submitted_s = time.perf_counter() + READ_S, 0.0
    while time.perf_counter() < give_up_s:
        if time.perf_counter() > submitted_s + 0.5:
            submitted_s = time.perf_counter()
            submit(port, 0, 1, 1)
        for path in paths:
            began_s = time.perf_counter()
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answer.read()
            times[path].append(time.perf_counter() - began_s)
            assert answer.status == 200, answer.status
    connection.close()
    return {path: sorted(taken_s) for path, taken_s in times.items()}


def _wait_until_up(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            if get(port, "/v1/health")["status"] == "ok":
                return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"the service ended with code {process.returncode}")


def wait_until_taken(port: int) -> None:
    while get(port, "/v1/status")["jobs"]["submitted"]:
        time.sleep(0.2)
    time.sleep(6.0)  # a round later whoever can run does


def get(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path, headers=_headers() if path != "/v1/health" else {})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def _headers() -> dict[str, str]:
    saved = json.loads(Path(os.environ["FAIRLEAD_CREDENTIALS"]).read_text(encoding="utf-8"))
    return {"Authorization": f"Bearer {saved['token']}", "Content-Type": "application/json"}


def _met(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    run()
