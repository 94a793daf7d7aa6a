"""kill -9 of the processes of a real service at random instants, and the accounts afterwards; `make kills` calls it.

    python tests/service/kills.py 1000 [SEED]

Two streams of clients submit, cancel, hold and release jobs meanwhile. Nothing that was acknowledged may be lost, nothing
may run twice, and every job that trains must have done each of its steps exactly once, whatever happened to it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # as pytest does

from daemons import Service, insist, running
from fairlead.engines.local import proc, shim
from fairlead.service.client import RefusedError
from waiting import until_told, wait_for

# Parts of all kills. A shim is the process of Fairlead above a job; a job is killed only if it trains, and is retried.
VICTIMS = {"scheduler": 0.56, "service": 0.12, "both": 0.12, "shim": 0.1, "job": 0.1}
STEPS = 12  # of a job that trains
# After the kill before: at once, which mostly strikes a start; once somebody was answered; once another job has begun.
MOMENTS = ("at once", "an answer", "a job")
BACKLOG = (
    12  # jobs that are not over, above which a stream submits no more: the queue stays short on a slow machine too
)


TRAIN = """
import json, os, sys, time
from fairlead import lease

result, steps = sys.argv[1], int(sys.argv[2])
saved = lease.restore()
done = json.loads((saved / "steps.json").read_text()) if saved else []

def write(folder):
    (folder / "steps.json").write_text(json.dumps(done))

for step in range(len(done), steps):
    time.sleep(0.02)
    done.append(step)
    lease.report(step + 1)
    if lease.should_stop():
        lease.stop(write)
    if step % 3 == 2:
        lease.checkpoint(write)
lease.checkpoint(write)
with open(f"{result}.{os.getpid()}", "w") as file:
    json.dump(done, file)
os.replace(f"{result}.{os.getpid()}", result)
"""


class Stream(threading.Thread):
    """Submits, cancels, holds and releases, and remembers what was acknowledged."""

    def __init__(self, service: Service, marks: Path, seed: int) -> None:
        super().__init__()
        self.service, self.marks, self.random = service, marks, random.Random(seed)
        self.acknowledged: dict[str, tuple[str, str]] = {}  # id -> (kind, key)
        self.over = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            number = 0
            while not self.over.wait(0.03):
                if self.backlog() < BACKLOG:
                    number += 1
                    self.one(f"{self.ident}-{number}")
        except BaseException as error:
            self.error = error

    def backlog(self) -> int:
        return len(insist(lambda: self.service.client().get("/jobs", phase="active"))["jobs"])

    def one(self, key: str) -> None:
        kind = self.random.choice(["plain", "plain", "trains", "trains", "fails", "cancelled", "held"])
        run = {
            "plain": f"echo . >> {self.marks}/{key}; sleep {self.random.choice([0, 0.05])}",
            "fails": f"echo . >> {self.marks}/{key}; exit 3",
            "cancelled": f"echo . >> {self.marks}/{key}; {until_told(self.marks.parent / 'over')}",
            "held": "sleep 0.2",
            "trains": f"{sys.executable} {self.marks.parent}/train.py {self.marks}/{key} {STEPS}",
        }[kind]
        job = {"name": kind, "tenant": self.random.choice(["ann", "bob"]), "run": run, "grace": 0.2}
        if kind == "trains":
            job |= {"grace": 5.0, "max_retries": 100}
        client = self.service.client()
        id_ = insist(lambda: client.post("/jobs", job, {"Idempotency-Key": key}))["id"]
        assert id_ not in self.acknowledged, f"{id_} was given away twice"
        self.acknowledged[id_] = (kind, key)
        time.sleep(self.random.choice([0, 0, 0.1, 0.4]))
        if kind == "cancelled":
            with suppress(RefusedError):  # if only the answer was lost, it has been cancelled: `_account` checks that
                insist(lambda: client.post(f"/jobs/{id_}/cancel"))
        elif kind == "held":
            with suppress(RefusedError):  # it may have ended by then
                insist(lambda: client.post(f"/jobs/{id_}/hold"))
                insist(lambda: client.post(f"/jobs/{id_}/release"))


def strike(service: Service, who: str, dice: random.Random, streams: list[Stream]) -> None:
    """Kills at a moment that depends on what was done since the last one, so that a slow machine gets on as well."""

    def answers() -> int:
        return sum(len(stream.acknowledged) for stream in streams)

    def jobs() -> int:
        return sum(1 for _ in streams[0].marks.iterdir())

    moment = dice.choice(MOMENTS)
    if moment != "at once":
        count = answers if moment == "an answer" else jobs
        before = count()
        wait_for(lambda: count() > before or any(stream.error for stream in streams), moment)
    time.sleep(dice.uniform(0.0, 0.6))  # anywhere in what follows
    if who in ("shim", "job"):
        wait_for(
            lambda: kill_lease(service.state, who, _training(streams), dice) or any(stream.error for stream in streams),
            f"a {who} to kill",
        )
    else:
        service.kill(who)


def _training(streams: list[Stream]) -> set[str]:
    return {id_ for stream in streams for id_, what in list(stream.acknowledged.items()) if what[0] == "trains"}


def kill_lease(state: Path, who: str, jobs: set[str], dice: random.Random) -> bool:
    """Kill the shim of a lease of one of these jobs, or the job itself; False if none of them runs."""
    claims = [path for path in state.glob("leases/*/*/claim") if path.parent.parent.name in jobs]
    dice.shuffle(claims)
    for path in claims:
        with suppress(OSError, ValueError, KeyError):
            record = json.loads(path.read_text())
            pid, born = ("group", "born") if who == "job" else ("supervisor", "supervisor_born")
            if not (path.parent / shim.EXIT).exists() and proc.born(record[pid]) == record[born]:
                os.kill(record[pid], signal.SIGKILL)
                return True
    return False


@dataclass(frozen=True)
class Account:
    """What a campaign of kills has seen."""

    kills: Counter[str]
    jobs: Counter[str]  # by kind
    leases: int
    steps: int  # that jobs which train have done, each once


def campaign(folder: Path, kills: int, seed: int) -> Account:
    """Kill that often while clients work, wait until everything has ended, and check the accounts."""
    dice = random.Random(seed)
    victims = [who for who, part in VICTIMS.items() for _ in range(max(round(kills * part), 1))]
    dice.shuffle(victims)
    marks = folder / "marks"
    marks.mkdir()
    (folder / "train.py").write_text(TRAIN)
    try:
        with running(folder) as service:
            streams = [Stream(service, marks, seed + n) for n in range(2)]
            _strike_all(service, victims, dice, streams)
            acknowledged = {id_: what for stream in streams for id_, what in stream.acknowledged.items()}
            shown = _settled(service)
            health = insist(lambda: service.client().get("/status"))
    finally:
        (folder / "over").touch()  # ends jobs that were not cancelled
    _account(acknowledged, shown, marks)
    assert health["gpus"]["v100"]["held"] == health["gpus"]["k80"]["held"] == 0
    _check_leases(service.state)
    _check_secrets(service)
    kinds = Counter(kind for kind, _ in acknowledged.values())
    leases = sum(job["leases"] for job in shown.values())
    return Account(Counter(victims), kinds, leases, STEPS * kinds["trains"])


def _strike_all(service: Service, victims: list[str], dice: random.Random, streams: list[Stream]) -> None:
    for stream in streams:
        stream.start()
    try:
        for number, who in enumerate(victims, 1):
            strike(service, who, dice, streams)
            if sys.stderr.isatty() or not number % 50:
                print(f"{number} of {len(victims)} kills", file=sys.stderr, flush=True)
    finally:
        for stream in streams:
            stream.over.set()
        for stream in streams:
            stream.join()
    assert [stream.error for stream in streams] == [None, None]


def _settled(service: Service) -> dict[str, dict[str, Any]]:
    """All jobs, once each has ended."""

    def everything() -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = insist(partial(service.client().get, "/jobs", limit=1000, after=after))
            jobs, after = jobs + page["jobs"], page["next"]
        return jobs

    wait_for(lambda: not insist(lambda: service.client().get("/jobs", phase="active"))["jobs"], "the end of all jobs")
    return {job["id"]: job for job in everything()}


def _account(acknowledged: dict[str, tuple[str, str]], shown: dict[str, dict[str, Any]], marks: Path) -> None:
    assert set(shown) == set(acknowledged)
    assert {kind for kind, _ in acknowledged.values()} == {"plain", "trains", "fails", "cancelled", "held"}
    ends = {"plain": "finished", "trains": "finished", "fails": "failed", "cancelled": "cancelled", "held": "finished"}
    for id_, (kind, key) in acknowledged.items():
        if kind == "trains":
            assert shown[id_]["phase"] == "finished", shown[id_]
            assert json.loads((marks / key).read_text()) == list(range(STEPS)), f"{id_} did not do each step once"
            continue
        ran = (marks / key).read_text().count(".") if (marks / key).exists() else 0
        assert shown[id_]["phase"] == ends[kind], (kind, ran, shown[id_])
        if kind in ("plain", "fails"):
            assert ran == 1, f"{id_} ({kind}) ran {ran} times: {shown[id_]}"
        elif kind == "cancelled":
            assert ran <= shown[id_]["leases"], (
                f"{id_} ran {ran} times on {shown[id_]['leases']} leases"
            )  # pre-empted ones run again


def _check_leases(state: Path) -> None:
    """Every lease that began has ended; one whose shim was killed has no exit code, and no process."""
    for claim in state.glob("leases/*/*/claim"):
        record = json.loads(claim.read_text())
        if "revoked" not in record:
            ended = (claim.parent / shim.EXIT).exists() or proc.born(record["group"]) != record["born"]
            assert ended, claim.parent


def _check_secrets(service: Service) -> None:
    token = service.client().token
    assert token is not None
    secret = token.split("_", 2)[2]
    log = (service.folder / "serve.log").read_text()
    assert secret not in log
    assert "Traceback" not in log, log[-4000:]
    for lease in service.state.glob("leases/*/*/lease.json"):
        text = lease.read_text()
        assert secret not in text
        assert "hunter2" not in text


def main() -> int:
    """Run a campaign of as many kills as the command line says."""
    kills, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 8
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fairlead-kills-") as folder:
        account = campaign(Path(folder), kills, seed)
    print(f"{account.kills.total()} kills in {time.monotonic() - began_s:.0f} s: {dict(account.kills)}")
    print(f"{account.jobs.total()} jobs acknowledged, all accounted for: {dict(account.jobs)}; {account.leases} leases")
    print(f"{account.steps} training steps, each counted once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
