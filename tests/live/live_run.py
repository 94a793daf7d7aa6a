"""Complete runs of the scheduling loop over real processes of this machine, with emulated GPUs and a journal.

A test says what users do next in a `Conduct`, which is asked whenever the engine looks for requests; it waits for facts
in the folded state, never for time. Jobs train a little linear model with `fairlead.lease` until they have done their
least steps and the file `over` exists, so that they run for as long as a test needs them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.engines.live import LiveEngine
from fairlead.engines.local.devices import slots_as_devices
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.requests import Command, Request, Submit
from fairlead.model.cluster import Cluster
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.policies import find_round_policy
from fairlead.rates.profile import Profile
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.journal import Header, JournalReader, JournalWriter
from fairlead.rounds.loop import Settings, When, run
from fairlead.rounds.records import Record
from fairlead.rounds.state import State
from fairlead.studies.journals.folding import open_state
from leftovers import end_leases
from waiting import PATIENCE_S

SOURCE = Path(__file__).resolve().parents[2] / "src"
OVER = "over"
STEP_S = 0.02  # of a step on the fastest GPU
TRAINING = f"""
import json, os, sys, time
from fairlead import lease
least, folder = int(sys.argv[1]), sys.argv[2]
saved = lease.restore()
state = json.loads((saved / "state").read_text()) if saved else {{"step": 0, "weight": 0.0}}
save = lambda to: (to / "state").write_text(json.dumps(state))
with open(os.path.join(folder, os.environ["FAIRLEAD_JOB"] + ".steps"), "a", buffering=1) as trained:
    while state["step"] < least or not os.path.exists(os.path.join(folder, "{OVER}")):
        time.sleep({STEP_S})
        x = (state["step"] * 7919 % 13) / 13 + 0.1
        state["weight"] -= 0.1 * x * (state["weight"] * x - 3 * x)
        state["step"] += 1
        trained.write(f"{{state['step']}} {{state['weight']!r}}\\n")
        lease.report(state["step"])
        if lease.should_stop():
            lease.stop(save)
"""

Conduct = Callable[[State], Sequence[Request] | None]  # the next requests; None ends the run


@dataclass(frozen=True)
class Plan:
    """A run: what is scheduled where. `pace` is the true speed of a type, relative to the fastest GPU."""

    folder: Path
    policy: str
    cluster: Cluster
    profile: Profile
    pace: Mapping[str, float]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    node_pace: Mapping[str, float] = field(default_factory=dict)  # relative to the node's type
    sensing: Sensing = Sensing.TABLE
    round_s: float = 1.0
    check_share: float = 0.0
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def header(self) -> Header:
        settings = {"round_s": self.round_s, "when": When.EVENTS, "min_run_s": 0.0, "check_share": self.check_share}
        more = {"unmeasured": True, "sensing": self.sensing, **self.more}
        return Header(self.cluster, self.profile, 0.0, self.policy, dict(self.parameters), settings, {}, more)


@dataclass(frozen=True)
class Done:
    """A run that has ended."""

    state: State
    journal: Path
    folder: Path

    def records(self) -> list[Record]:
        return list(JournalReader(self.journal).records())

    def trained(self, job: str) -> list[tuple[int, float]]:
        """(step, weight) in the order in which the processes of the job trained."""
        lines = (self.folder / f"{job}.steps").read_text().splitlines()
        return [(int(step), float(weight)) for step, weight in (line.split() for line in lines)]


class _Users:
    """The inbox: it asks the conduct for requests, and rests in between."""

    def __init__(self, state: State, conduct: Conduct, commands: dict[str, Command]) -> None:
        self._state, self._conduct, self._commands = state, conduct, commands
        self._give_up_s = time.monotonic() + PATIENCE_S
        self._rest = threading.Event()

    def take(self, timeout_s: float) -> list[Request] | None:
        requests = self._conduct(self._state)
        if requests is None:
            return None
        for request in requests:
            if isinstance(request, Submit):
                self._commands[request.spec.id] = request.command
        if not requests:
            assert time.monotonic() < self._give_up_s, f"waited in vain; {story(self._state)}"
            self._rest.wait(min(timeout_s, 1.0))
        return list(requests)


def run_live(plan: Plan, conduct: Conduct) -> Done:
    """Run the loop until the conduct ends it. No process survives it."""
    plan.folder.mkdir(exist_ok=True)
    (plan.folder / "training.py").write_text(TRAINING)
    header, state = plan.header, open_state(plan.header)
    slots = slots_as_devices(state.cluster.nodes, state.cluster.node_gpus.tolist())
    runner = LocalRunner(plan.folder / "state", slots, pace=plan.pace, node_pace=plan.node_pace)
    commands: dict[str, Command] = {}
    began_s = time.monotonic()
    engine = LiveEngine(
        state,
        runner,
        _Users(state, conduct, commands),
        commands.__getitem__,
        lambda: time.monotonic() - began_s,
        progress_s=0.5,
        learns_restarts=header.restart_s is None,
    )
    journal = plan.folder / "journal.jsonl"
    settings = Settings(plan.round_s, When.EVENTS, 0.0, check_share=plan.check_share)
    policy = find_round_policy(plan.policy).with_parameters(plan.parameters)
    try:
        with journal.open("w", encoding="utf-8") as file:
            run(engine, state, policy, settings, JournalWriter(file, header))
    finally:
        end_leases(runner.root)
    return Done(state, journal, plan.folder)


def training(folder: Path, id_: str, tenant: str, steps: float, model: str = "m", gpus: int = 1, **spec: Any) -> Submit:
    """A job that trains at least twenty steps, and then until the run is over; its owner declares `steps`."""
    run_ = f"exec {sys.executable} {folder}/training.py 20 {folder}"
    env = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    command = Command(run_, workdir=str(folder), env=env, grace_s=PATIENCE_S)
    return Submit(JobSpec(id_, tenant, model, 0.0, gpus, steps, **spec), command)


def let_end(folder: Path) -> None:
    """From here on jobs come to their end."""
    (folder / OVER).touch()


def all_ended(state: State) -> bool:
    return state.jobs > 0 and not state.active


def weight_after(steps: int) -> float:
    """The weight that training without any interruption gives."""
    weight = 0.0
    for step in range(steps):
        x = (step * 7919 % 13) / 13 + 0.1
        weight -= 0.1 * x * (weight * x - 3 * x)
    return weight


def story(state: State) -> str:
    jobs = (f"{s.id} {Phase(int(state.phase[j])).name} done {state.done[j]:g}" for j, s in enumerate(state.specs))
    return f"at {state.now_s:.1f} s: {', '.join(jobs)}"
