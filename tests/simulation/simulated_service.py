"""One seeded history of the service: the real scheduler, store and live engine on simulated disks, clocks and machines.

A scheduler runs inside `Simulation.wait`, which is where the world moves on: clients ask, nodes fail, clocks are set,
processes are killed. Whatever a killed process would still do is lost. After a storm of faults everything works again,
and every job has to come to its end.
"""

from __future__ import annotations

import heapq
import io
import math
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import simulated_policy
from simulated_disk import Disk, watched
from simulated_faults import FAULTS, let_decide, turn_bad, turn_dim
from simulated_machines import CLUSTER, RATE, SPARE, BrokenPromiseError, Job, Machines, SimulatedRunner, Weather

from building import profile
from fairlead.engines.clock import MachineClocks
from fairlead.engines.requests import (
    Cancel,
    Command,
    Drain,
    Hold,
    Release,
    RemoveNode,
    Request,
    SetPolicy,
)
from fairlead.engines.runner import Capabilities, Runner
from fairlead.model.cluster import Cluster
from fairlead.model.errors import FairleadError
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import ENDED, Phase
from fairlead.rounds.journal import Header
from fairlead.rounds.loop import settings_to_json
from fairlead.rounds.state import State
from fairlead.service.process.scheduler import SchedulerOptions, Surroundings, serve
from fairlead.service.store import changes, request_queue
from fairlead.service.store import log as log_of_events
from fairlead.service.store.database import DiskFullError, disk_full_raised, open_reader, open_writer
from fairlead.service.store.directory import make, open_directory
from fairlead.service.store.facts import fact
from fairlead.service.store.tables import REQUESTS
from fairlead.service.store.writer import Writer

PLAN = SchedulerOptions(round_s=30.0, min_run_s=10.0)
HEADER = Header(
    cluster=CLUSTER,
    profile=profile({"m": RATE}),
    restart_s=None,
    policy="fifo",
    parameters={},
    settings=settings_to_json(PLAN.settings),
    tenant_weight={},
    more={"sensing": "three-layer", "unmeasured": True, "engine": "simulated"},
)
STORM_S = 400.0
MOST_JOBS = 12
MOST_STEPS = 50_000  # waits and messages of a history; some thousand are usual
MOST_LIVES = 1000  # of processes
CALM_S = 6 * 3600.0  # by then everything has ended, or never will
_IN_STORMS = (Hold, Cancel, Drain, RemoveNode, SetPolicy)
_ENDED = [phase.name.lower() for phase in ENDED]
_WITHOUT_GPUS = (int(Phase.WAITING), int(Phase.HELD))
_SAME = 1e-6


class Crash(BaseException):
    """As sudden as kill -9."""


@dataclass(slots=True)
class Client:
    """What one submitter knows about its job."""

    key: str
    submission: request_queue.Submission
    job: Job
    id: str | None = None  # once it was acknowledged
    cancelled: bool = False  # it was asked for, and may have been heard
    cancel: float = math.inf  # number of the request, once it was acknowledged
    held: bool = False


class Simulation:
    """A history. `run` raises BrokenPromiseError, or whatever the product raises, if something goes wrong."""

    most_steps, most_lives = MOST_STEPS, MOST_LIVES

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        storm_s: float = STORM_S,
        cluster: Cluster = CLUSTER,
        plan: SchedulerOptions = PLAN,
    ) -> None:
        self.seed, self.storm_s, self.cluster, self.plan = seed, storm_s, cluster, plan
        self.tally: Counter[str] = Counter()
        self.dice: random.Random = self._stream("faults")
        self.directory = open_directory(folder / "state")
        sensing = self.dice.choice(("three-layer", "table"))
        more = {**HEADER.more, "sensing": sensing}
        policy = self.dice.choice(simulated_policy.POLICIES)
        make(self.directory, replace(HEADER, cluster=cluster, policy=policy, more=more))
        self.disk: Disk = Disk(self.directory.path, self._stream("disk"))
        self.disk.on_sync = self._sync_takes_time
        self.jobs: dict[str, Job] = {}
        sizes = dict(zip(cluster.nodes, cluster.node_gpus.tolist(), strict=True))
        sizes[SPARE[0]] = SPARE[1].gpus
        self.machines: Machines = Machines(folder / "checkpoints", sizes, self.jobs, self._stream("machines"))
        self.weather: Weather = Weather()
        queues = self.dice.random() < 0.4
        self.capabilities = Capabilities(
            look_s=self.dice.choice((3.0, 6.0)), claim_s=25.0, queue_s=30.0, picks_devices=queues, queues=queues
        )
        self.now_s = 0.0
        self.wall_s = 1_800_000_000.0  # minus `now_s`
        self.boot, self.booted_s = 0, -1000.0
        self.clients: list[Client] = []
        self.acknowledged: dict[str, Client] = {}
        self.state: State | None = None
        self.log_s = 0.0
        self.calm = False
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._lives = self._steps = 0
        self.scheduler = self.api_life = 0
        self._writer: Writer | None = None
        self._rung = False
        self.power_fails = False
        self.kills_to_come = 0  # one after each start
        self.slow_s = 0.0
        self._ended: dict[str, str] = {}  # phases of jobs that the scheduler has forgotten
        self.undo: list[Request] = []  # what puts nodes back into service
        self.calls: int | None = None  # messages to machines until the scheduler is killed
        if self.dice.random() < 0.5:
            turn_bad(self)
            turn_dim(self)
        self._draw_up(self.dice.randint(4, MOST_JOBS))

    def run(self) -> None:
        output = io.StringIO()
        often = self.dice.choice((log_of_events.SNAPSHOT_EVERY, 25))  # records between snapshots
        with (
            watched(self.disk),
            redirect_stdout(output),
            redirect_stderr(output),
            patch.object(log_of_events, "SNAPSHOT_EVERY", often),
        ):
            try:
                while not self._over():
                    self._live()
                self._end_processes()
            finally:
                simulated_policy.FAILS[0] = None
                self.disk.life = -1
                self.disk.close_all()

    # ---- what will happen ------------------------------------------------------------------------------------------

    def _stream(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")

    def at(self, time_s: float, do: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (time_s, self._number, do))

    def _draw_up(self, jobs: int) -> None:
        dice = self._stream("history")
        for number in range(jobs):
            client = self._client(number, dice)
            self.clients.append(client)
            at_s = dice.uniform(0.0, 0.7 * self.storm_s)
            self.at(at_s, partial(self._submit, client))
            for _ in range(dice.choice((0, 0, 1, 2, 3))):
                kind = dice.choice((Cancel, Hold, Release, Hold, Release))
                self.at(at_s + dice.expovariate(1 / 60), partial(self._wish, client, kind))
        for _ in range(dice.randint(6, 16)):
            name = dice.choice(list(FAULTS))
            self.at(dice.uniform(0.0, self.storm_s), partial(self._strike, name))
        self.at(self.storm_s, self._calm_down)

    def _client(self, number: int, dice: random.Random, longest: int = 300) -> Client:
        job = Job(
            dice.choice((dice.randint(1, 12), dice.randint(10, longest), dice.randint(10, longest))),
            saves_every_s=dice.choice((7.0, 20.0, 60.0)),
        )
        kind = dice.random()
        if kind < 0.1:
            job.fails_after_s = dice.uniform(0.0, 60.0)
        elif kind < 0.2:
            job.deaf = True
        elif kind < 0.25:
            job.missing = True
        spec = JobSpec(
            "new", dice.choice(("ann", "bob", "eve")), "m", 0.0, dice.choice((1, 1, 2)), dice.choice((None, job.steps))
        )
        command = Command("train", grace_s=dice.choice((5.0, 15.0)), max_retries=dice.choice((0, 1)))
        return Client(f"key-{number}", request_queue.Submission(f"job {number}", spec, command), job)

    def _strike(self, name: str) -> None:
        self.tally[name] += 1
        FAULTS[name](self)

    # ---- the end of the storm -----------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        """No more faults. What is held is released, and nodes are put back into service."""
        self.calm = True
        self.disk.crash_in = self.calls = None
        self.disk.full = self.disk.sync_fails = self.power_fails = False
        self.slow_s = 0.0
        let_decide()
        self._clear_weather()
        for node in self.machines.nodes:
            self.machines.bring_back(node)
        for request in dict.fromkeys(self.undo):
            self.ask(request)
        self._release_all()

    def _clear_weather(self) -> None:
        for name in ("loses", "delays", "doubles", "refuses", "omits", "lag_s", "outage"):
            setattr(self.weather, name, type(getattr(self.weather, name))(0))

    def _release_all(self) -> None:
        for client in self.clients:
            if client.held:
                self._wish(client, Release)

    def _sync_takes_time(self) -> None:
        self.now_s += self.slow_s * self.dice.random()

    # ---- clients ---------------------------------------------------------------------------------------------------

    def _submit(self, client: Client) -> None:
        """Submit, and again with the same key until it is acknowledged."""
        key = changes.SubmissionKey("token", client.key, "digest")
        answer = self._write(changes.submit("sim", client.submission, key))
        if answer is None:
            self.at(self.now_s + 7.0, lambda: self._submit(client))
            return
        id_, new = answer
        if client.id not in (None, id_):
            raise BrokenPromiseError(f"{client.key} was acknowledged as {client.id} and then as {id_}")
        if client.id is None and id_ in self.acknowledged:
            raise BrokenPromiseError(f"{id_} was given to {self.acknowledged[id_].key} and to {client.key}")
        if client.id is not None and new:
            raise BrokenPromiseError(f"{client.key} was submitted twice")
        client.id = id_
        self.acknowledged[id_] = client
        self.jobs[id_] = client.job

    def repeat_submit(self) -> None:
        if self.acknowledged:
            self._submit(self.dice.choice(list(self.acknowledged.values())))

    def _wish(self, client: Client, kind: type[Cancel | Hold | Release]) -> None:
        if self.calm and kind is not Release:
            return
        if client.id is None:
            if not self.calm:
                self.at(self.now_s + 20.0, lambda: self._wish(client, kind))
            return
        client.cancelled |= kind is Cancel
        client.held |= kind is Hold
        self.tally[kind.__name__.lower()] += 1
        self.ask(kind(client.id))

    def ask(self, request: Request) -> None:
        """Ask, and again until it is acknowledged; once all is calm, only for what helps jobs to their end."""
        if self.calm and isinstance(request, _IN_STORMS):
            return
        number = self._write(changes.ask("sim", request))
        if number is None:
            self.at(self.now_s + 7.0, lambda: self.ask(request))
        elif isinstance(request, Cancel):
            client = self.acknowledged[request.job]
            client.cancel = min(client.cancel, number)

    def _write(self, change: changes.Change[Any]) -> Any:
        """The answer of the API; None if it is down, dies before it has answered, or has no room."""
        if self._writer is None or self.api_life in self.disk.dead:
            return None
        before, self.disk.life = self.disk.life, self.api_life
        try:
            answer = self._writer.write_now(change)
        except DiskFullError:
            return None
        except sqlite3.Error:
            if self.api_life not in self.disk.dead and not self.disk.sync_fails:
                raise
            return None
        finally:
            self.disk.life = before
        return None if self.api_life in self.disk.dead else answer

    # ---- time ------------------------------------------------------------------------------------------------------

    def clocks(self) -> MachineClocks:
        return MachineClocks(lambda: self.wall_s + self.now_s, lambda: self.now_s - self.booted_s, f"boot-{self.boot}")

    def wait(self, timeout_s: float) -> bool:
        """What a scheduler waits on: the world moves on until the timeout, or until somebody asks."""
        self._danger()
        self._check_now()
        until_s = self.now_s + max(timeout_s, 0.001)
        while not self._rung and self.now_s < until_s:
            if self._over() or self.api_life in self.disk.dead:
                return False
            self._move_on(until_s)
            self._danger()
        self._rung = False
        return True

    def _move_on(self, until_s: float) -> None:
        """To the next thing on the agenda, or to that time."""
        if self._agenda and self._agenda[0][0] <= until_s:
            at_s, _, do = heapq.heappop(self._agenda)
            self.now_s = max(self.now_s, at_s)
            self.machines.advance(self.now_s)
            do()
        else:
            if until_s == math.inf:
                raise BrokenPromiseError("the scheduler would never wake up")
            self.now_s = until_s
            self.machines.advance(self.now_s)

    def _pass(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self._move_on(until_s)

    # ---- processes -------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        """One scheduler, from its start to its end, and what follows from that."""
        if self._writer is None and not self._start_api():
            self._pass(10.0)
            return
        self.scheduler = self.disk.life = self._next_life()
        if self.kills_to_come and not self.calm:
            self.kills_to_come -= 1
            self.disk.crash_in = self.dice.randrange(80)
        around = Surroundings(self.clocks(), self._open_runner, self.wait)
        ended = False
        try:
            with disk_full_raised():
                serve(self.directory, self.plan, around)
            ended = self.scheduler not in self.disk.dead
        except Crash:
            pass
        except DiskFullError:
            self.tally["scheduler without room"] += 1
        except simulated_policy.PolicyCrashError:
            pass
        except (sqlite3.Error, FairleadError):
            if self.scheduler not in self.disk.dead and not self.disk.sync_fails:
                raise
        if not ended:
            self.state = None  # what it had not committed did not happen
        self._settle_deaths()
        if not self._over():
            self._pass(self.dice.uniform(0.1, 10.0))

    def _settle_deaths(self) -> None:
        self.disk.kill(self.scheduler)
        self.disk.close(self.scheduler)
        self.tally["restarts"] += 1
        if self.power_fails and self.disk.crash_in is None:
            self.disk.kill(self.api_life)
        if self.api_life in self.disk.dead:
            self._stop_api()
        if self.power_fails and self.disk.crash_in is None:
            self.power_fails = False
            self.tally["unsynced writes lost or torn"] += self.disk.unsynced
            self.disk.lose_power()
            self.boot += 1
            self.booted_s = self.now_s

    def _start_api(self) -> bool:
        self.api_life = self.disk.life = self._next_life()
        try:
            self._writer = Writer(open_writer(self.directory.requests, REQUESTS), self._ring)
        except (FairleadError, sqlite3.Error):
            if not (self.api_life in self.disk.dead or self.disk.full or self.disk.sync_fails):
                raise
            self.disk.kill(self.api_life)
            self.disk.close(self.api_life)
            return False
        return True

    def _stop_api(self) -> None:
        if self._writer is not None:
            self.disk.life = self.api_life
            self._writer.close()
            self._writer = None
        self.disk.close(self.api_life)

    def _end_processes(self) -> None:
        self._stop_api()

    def _ring(self) -> None:
        self._rung = True

    def _next_life(self) -> int:
        self._lives += 1
        _need(self._lives < self.most_lives, f"processes start in vain again and again at {self.now_s} s")
        return self._lives

    def _open_runner(self, path: Path, state: State, options: Any) -> Runner:
        self.state = state
        self._check_recovered(state)
        return SimulatedRunner(
            self.machines,
            self.weather,
            self.capabilities,
            self._stream(f"runner {self._lives}"),
            self.tally,
            self._message,
        )

    def _message(self, what: str, job: str = "") -> None:
        self._danger(message=True)
        if what == "launch":
            self._check_launch(self.acknowledged.get(job))

    def _check_launch(self, client: Client | None) -> None:
        """Nothing is launched that is not in the log, or whose cancellation is."""
        _need(client is not None, "a job is launched that was never acknowledged")
        assert client is not None
        if client.cancel < math.inf:
            log = open_reader(self.directory.events)
            taken = fact(log, "taken")
            log.close()
            _need(taken < client.cancel, f"{client.id} is launched after its cancellation, request {client.cancel}")

    def _danger(self, *, message: bool = False) -> None:
        """Where a killed scheduler notices it, and where it is killed if that was to happen at a message."""
        self._steps += 1
        _need(self._steps < self.most_steps, f"it runs in circles at {self.now_s} s")
        if message and self.calls is not None:
            self.calls -= 1
            if self.calls < 0:
                self.calls = None
                self.disk.kill(self.scheduler)
        if self.scheduler in self.disk.dead:
            raise Crash

    def last_records(self, count: int) -> list[str]:
        """The end of the log, as text."""
        log = open_reader(self.directory.events)
        rows = log.execute("SELECT seq, record FROM log ORDER BY seq DESC LIMIT ?", (count,)).fetchall()
        log.close()
        return [f"{seq} {record}" for seq, record in reversed(rows)]

    # ---- what must hold --------------------------------------------------------------------------------------------

    def _over(self) -> bool:
        """Whether all jobs have ended and nothing runs any more."""
        if not self.calm or self.state is None:
            return False
        left = (f"{client.key}: {self._phase(client)}" for client in self.clients if self._phase(client) not in _ENDED)
        if self.now_s > self.storm_s + CALM_S:
            raise BrokenPromiseError(f"hours after the last fault these have not ended: {list(left)}")
        return next(left, None) is None and not any(run.runs for run in self.machines.open.values())

    def _phase(self, client: Client) -> str:
        """The phase of the client's job; of one that the scheduler has forgotten, as it is in the table."""
        assert self.state is not None
        if client.id is None:
            return "never submitted"
        if client.id in self.state.position:
            return Phase(int(self.state.phase[self.state.position[client.id]])).name.lower()
        if client.id not in self._ended:
            log = open_reader(self.directory.events)
            row = log.execute("SELECT phase FROM jobs WHERE id = ?", (client.id,)).fetchone()
            log.close()
            if row is None:
                return "not taken"
            self._ended[client.id] = row[0]
        return self._ended[client.id]

    def _check_recovered(self, state: State) -> None:
        """What a new scheduler finds on the disk contains everything that was acknowledged or acted upon."""
        requests = open_reader(self.directory.requests)
        stored = {row[0] for row in requests.execute("SELECT id FROM jobs")}
        requests.close()
        lost = self.acknowledged.keys() - stored
        _need(not lost, f"{lost} were acknowledged and are not in requests.db")
        for job, number in self.machines.runs:
            j = state.position.get(job)
            if j is None:
                phase = self._phase(self.acknowledged[job])
                _need(phase in _ENDED, f"lease {number} of {job} was launched, and the log does not know the job")
                continue
            _need(number <= state.leases[j], f"lease {number} of {job} was launched, the log knows {state.leases[j]}")
        _need(state.now_s >= self.log_s - _SAME, f"the log went back from {self.log_s} to {state.now_s}")

    def _check_now(self) -> None:
        state = self.state
        assert state is not None
        _need(state.now_s >= self.log_s - _SAME, f"the time of the log went back from {self.log_s} to {state.now_s}")
        self.log_s = state.now_s
        _need(min(state.node_free.tolist()) >= 0, f"nodes have {state.node_free.tolist()} GPUs free")
        newest, done = self.machines.newest, state.done[: state.jobs]
        without = np.isin(state.phase[: state.jobs], _WITHOUT_GPUS)
        for j in np.flatnonzero(without & (done > 0)).tolist():
            spec = state.specs[j]
            saved = max(newest.get(spec.id, (0, 0))[1], self.machines.untold.get(spec.id, 0)) * spec.gpus
            _need(done[j] <= saved + _SAME, f"{spec.id} counts {done[j]} samples as safe; it has saved {saved}")


def _need(holds: bool, complaint: str) -> None:
    if not holds:
        raise BrokenPromiseError(complaint)
