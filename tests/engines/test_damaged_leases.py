"""Damage to any file of a lease is the loss of its job at most: never of the service, nor of other jobs."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from building import profile
from fairlead.engines.leases import Condition
from fairlead.engines.live import LiveEngine
from fairlead.engines.local import shim
from fairlead.engines.local.devices import slots_as_devices
from fairlead.engines.local.files import REPORT
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.requests import Command, Request, Submit
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Decision
from fairlead.model.events import Event, Failed, Lost
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.policies import find_round_policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.loop import Settings, When, run
from fairlead.rounds.state import State
from leftovers import end_leases
from waiting import PATIENCE_S, until_told, wait_for

FILES = (shim.LEASE, shim.CLAIM, shim.ALIVE, shim.ASKED, shim.EXIT, shim.LOG, REPORT)


def _directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)


def _link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/etc/passwd")


def _truncated(path: Path) -> None:
    content = path.read_bytes() if path.is_file() else b"{"
    path.write_bytes(content[: random.Random(str(path.name)).randrange(len(content) + 1)])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(missing_ok=True),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": _truncated,
    "binary": lambda path: path.write_bytes(random.Random(path.name).randbytes(4096)),
    "huge": lambda path: path.write_bytes(b"[" * (3 << 20)),
    "directory": _directory,
    "link": _link,
    "list": lambda path: path.write_text("[1, 2]"),
    "shape": lambda path: path.write_text(
        '{"fairlead": "?", "code": "0", "group": "1", "boot": null, "gpus": [{"node": 3}], "command": {"run": 1}, "job": 7}'
    ),
    "numbers": lambda path: path.write_text('{"code": true, "group": -1, "supervisor": 1, "cgroups": 3, "at_s": NaN}'),
}


class Story:
    """A journal in memory."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    def decision(self, decision: Decision) -> None: ...


@dataclass
class Service:
    """The loop over real processes, with everything that survives a restart."""

    root: Path
    jobs: list[str]
    story: Story = field(default_factory=Story)
    cluster = parse_short_form("v100:200x200")

    def __post_init__(self) -> None:
        self.state = State(self.cluster, TableEstimator(profile({"m": {"v100": 1.0}}), self.cluster))
        once = 'exec 9>"$FAIRLEAD_JOB.lock"; flock -n 9 || echo "$FAIRLEAD_JOB" >> twice'
        self.command = Command(f"{once}\n{until_told(self.root / 'over')}", workdir=str(self.root), grace_s=PATIENCE_S)

    @property
    def leases(self) -> Path:
        return self.root / "state" / "leases"

    def runner(self) -> LocalRunner:
        slots = slots_as_devices(self.cluster.nodes, self.cluster.node_gpus.tolist())
        return LocalRunner(self.root / "state", slots)

    def until(self, done: Callable[[State], bool], requests: list[Request]) -> None:
        """The service starts, and runs until something is done."""
        began_s, from_s = time.monotonic(), self.state.now_s
        inbox = Inbox(requests, lambda: done(self.state))
        engine = LiveEngine(
            self.state, self.runner(), inbox, lambda job: self.command, lambda: from_s + time.monotonic() - began_s
        )
        engine.resume()
        run(engine, self.state, find_round_policy("fifo"), Settings(60.0, When.EVENTS), self.story)

    def sentences(self, job: str) -> list[str]:
        """How the leases of a job were lost."""
        j = self.state.position[job]
        return [event.reason for event in self.story.events if isinstance(event, Lost | Failed) and j in event.jobs]


class Inbox:
    def __init__(self, requests: list[Request], done: Callable[[], bool]) -> None:
        self._requests, self._done = requests, done
        self._give_up_s = time.monotonic() + PATIENCE_S

    def take(self, timeout_s: float) -> list[Request] | None:
        assert time.monotonic() < self._give_up_s, "waited in vain"
        if self._done():
            return None
        if not self._requests:
            time.sleep(min(timeout_s, 0.1))
        requests, self._requests = self._requests, []
        return requests


def _all_run(state: State) -> bool:
    return state.jobs > 0 and bool((state.phase[: state.jobs] == Phase.RUNNING).all())


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    names = [f"{file.replace('/', '_')}-{damage}" for file in FILES for damage in DAMAGES]
    service = Service(tmp_path, [*names, "healthy-1", "healthy-2"])
    yield service
    end_leases(service.root / "state")


@pytest.mark.parametrize("ended", [False, True], ids=["while it runs", "after its end"])
def test_damage_to_a_file_of_a_lease_is_the_loss_of_one_job_at_most(service: Service, ended: bool) -> None:
    """Each job has one damaged file. The service restarts, decides, and every job comes to its end."""
    service.until(_all_run, [Submit(JobSpec(id_, "t", "m", 0.0, 1, 60.0), service.command) for id_ in service.jobs])
    if ended:
        (service.root / "over").touch()
        runner = service.runner()
        keys = [(id_, 1) for id_ in service.jobs]
        wait_for(
            lambda: all(sight.condition is Condition.ENDED for sight in runner.look(keys).sights.values()), "the ends"
        )
    for file in FILES:
        for damage, act in DAMAGES.items():
            act(service.leases / f"{file.replace('/', '_')}-{damage}" / "1" / file)

    state = service.state
    looks: list[None] = []

    def over(state: State) -> bool:
        looks.append(None)
        if len(looks) == 10:  # jobs were adopted meanwhile, or their loss was found
            (service.root / "over").touch()
        return not state.active

    service.until(over, [])

    for id_ in service.jobs:
        j = state.position[id_]
        leases, sentences = int(state.leases[j]), service.sentences(id_)
        assert Phase(int(state.phase[j])) is Phase.FINISHED, (id_, sentences)
        assert len(sentences) == leases - 1, id_
        assert all(f"/{id_}/1/" in sentence for sentence in sentences), (id_, sentences)
    healthy = [state.position[id_] for id_ in service.jobs if id_.startswith("healthy")]
    assert state.leases[healthy].tolist() == [1, 1]
    assert not (service.root / "twice").exists(), (service.root / "twice").read_text()


def test_a_lease_whose_claim_is_damaged_can_still_be_killed(tmp_path: Path) -> None:
    service = Service(tmp_path, ["a"])
    service.until(_all_run, [Submit(JobSpec("a", "t", "m", 0.0, 1, 60.0), service.command)])
    (service.leases / "a" / "1" / shim.CLAIM).write_text('{"group": -1}')
    runner = service.runner()
    lease = runner.recall(("a", 1))
    assert lease is not None

    runner.kill(lease)

    wait_for(lambda: runner.look([lease.key]).sight(lease.key).code == 128 + 9, "the end of the lease")


def test_a_job_whose_directory_was_deleted_after_its_end_runs_again(tmp_path: Path) -> None:
    service = Service(tmp_path, ["a"])
    service.until(_all_run, [Submit(JobSpec("a", "t", "m", 0.0, 1, 60.0), service.command)])
    (service.root / "over").touch()
    runner = service.runner()
    wait_for(lambda: runner.look([("a", 1)]).sight(("a", 1)).condition is Condition.ENDED, "the end of the lease")
    shutil.rmtree(service.leases / "a" / "1")

    service.until(lambda state: not state.active, [])

    assert (Phase(int(service.state.phase[0])), int(service.state.leases[0])) == (Phase.FINISHED, 2)
