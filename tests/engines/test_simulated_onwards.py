"""A simulation that continues a live run: what the journal's checker demands of any journal holds for it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from engine_world import CLUSTER, SPEEDS, Does
from virtual_world import PretendWorld, VirtualWorld

from building import ROUND_POLICIES
from checker import check_journal
from fairlead.engines.requests import Command, Hold, Submit
from fairlead.model.allocation import Spot
from fairlead.model.decision import Decision
from fairlead.model.errors import InputError
from fairlead.model.events import Event
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.policies import REGISTRY, find_round_policy
from fairlead.policies.policy import Policy
from fairlead.rounds.copying import copied
from fairlead.rounds.journal import Header, NoJournal
from fairlead.rounds.loop import Settings, When, run, run_with, settings_from_json
from fairlead.rounds.snapshot import dump
from fairlead.rounds.state import State
from fairlead.service.process.scheduler import decide_here
from fairlead.service.store.database import open_writer
from fairlead.service.store.directory import make, open_directory, read_directory
from fairlead.service.store.log import open_log
from fairlead.service.store.tables import EVENTS
from fairlead.sim.truth import World
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.origin import Origin, continue_from, service_origin
from fairlead.studies.runs.simulate import BothJournals
from fairlead.studies.what_if.forward import forward

LOOKS_S = 0.75  # five ends in a row, each seen up to 0.15 s late
SETTINGS = {"round_s": 1.0, "when": "events", "min_run_s": 0.0, "scatter": False}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a service that has run for four seconds: jobs have ended, run, are held and wait, one of them of unknown length."""
    path = tmp_path / "state"
    header = Header(CLUSTER, SPEEDS, None, "las", {}, SETTINGS, {}, {"unmeasured": True})
    make(open_directory(path), header)
    with closing(open_writer(path / "events.db", EVENTS)) as connection:
        log = open_log(connection)
        world = VirtualWorld()
        world.state = log.state
        world.connect()
        for number, steps in enumerate((10.0, 90.0, 200.0, 90.0, None)):
            id_ = f"job-{number}"
            world.commands[id_] = world.command(Does.TRAIN, 0)
            world.inbox.put(Submit(JobSpec(id_, "t", "m", 0.0, 1, steps), world.commands[id_]))
        world.inbox.put(Hold("job-3"))

        def tick(state: State) -> None:
            world.inbox.over = state.now_s >= 4.0

        run(world.engine, log.state, find_round_policy("las"), Settings(1.0, When.EVENTS), log, tick)
        log.commit(0)
    return path


def origin(directory: Path) -> Origin:
    return service_origin("service", *read_directory(directory))


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=lambda policy: policy.name)
def test_every_policy_continues_a_live_run(policy: Policy, directory: Path, tmp_path: Path) -> None:
    start, path = origin(directory), tmp_path / "onwards.jsonl"
    phases = {Phase(int(phase)) for phase in start.state.phase[: start.state.jobs]}
    assert {Phase.HELD, Phase.RUNNING} <= phases
    before = dump(start.state)
    later = tuple(JobSpec(f"later-{i}", "u", "m", start.state.now_s + i, 1, 40.0) for i in range(3))
    world = World(mtbf_s=30.0, repair_s=5.0, checkpoint_s=1.0)

    result = continue_from(start, policy, start.settings, world, future=later, unknown_lasts_s=20.0, journal=path)

    assert dump(start.state) == before
    checked = check_journal(path)
    assert checked.jobs.keys() == {f"job-{i}" for i in range(5)} | {spec.id for spec in later}
    assert checked.records["finished"] > 0
    assert result.state.phase[result.state.position["job-3"]] == Phase.HELD
    if policy in REGISTRY.values():
        replayed = replay_journal(path)
        assert replayed.decisions == replayed.same > 0


def test_a_job_of_unknown_length_needs_an_assumption(directory: Path) -> None:
    start = origin(directory)
    with pytest.raises(InputError, match="length of job job-4 is unknown"):
        continue_from(start, find_round_policy("las"), start.settings, World())


def test_what_does_not_fit_behind_a_state_is_refused(directory: Path) -> None:
    start = origin(directory)
    spec = JobSpec("job-1", "t", "m", start.state.now_s + 1.0, 1, 5.0)
    for bad, complaint in ((spec, "in the state already"), (replace(spec, id="new", arrival_s=0.0), "wanted at")):
        with pytest.raises(InputError, match=complaint):
            continue_from(start, find_round_policy("las"), start.settings, World(), future=(bad,), unknown_lasts_s=1.0)


@pytest.mark.parametrize("name", ["fifo", "las", "srtf"])
def test_the_simulated_future_is_the_live_one_if_nothing_unexpected_happens(name: str, tmp_path: Path) -> None:
    """Jobs that pretend take as long as they declare; the live engine sees an end when it looks next."""
    world, policy = PretendWorld(tmp_path), find_round_policy(name)
    settings = Settings(1.0, When.EVENTS)
    for number, seconds in enumerate((2, 5, 3, 4, 2, 6)):
        spec = JobSpec(f"job-{number}", "t", "m", 0.0, 1, 20.0 * seconds, types=("v100",))
        world.commands[spec.id] = Command(f"sleep {seconds}", grace_s=1.0)
        world.inbox.put(Submit(spec, world.commands[spec.id]))
    presents: list[State] = []

    def tick(state: State) -> None:
        if not presents and state.running:
            presents.append(copied(state))
        world.inbox.over = state.ended >= 4  # the last ends cause no decision

    run(world.engine, world.state, policy, settings, NoJournal(), tick)
    world.close()
    header = Header(CLUSTER, SPEEDS, None, name, {}, SETTINGS, {}, {})
    future = forward(Origin("live", header, presents[0], policy, settings))

    live = world.state
    ended = [id_ for id_ in future.jobs if not np.isnan(live.end_s[live.position[id_]])]
    assert len(ended) >= 3
    for id_ in ended:
        assert future.jobs[id_].end_s == pytest.approx(live.end_s[live.position[id_]], abs=LOOKS_S), id_


@dataclass
class Decided:
    """The decisions of a run after some time, with the names of jobs; events are not kept."""

    state: State
    rows: list[tuple[float, list[str], dict[str, Spot]]] = field(default_factory=list)

    def event(self, event: Event) -> None: ...

    def decision(self, decision: Decision) -> None:
        ids = [spec.id for spec in self.state.specs]
        starts = zip(decision.start.tolist(), decision.spots, strict=True)
        self.rows.append((decision.time_s, [ids[j] for j in decision.stop.tolist()], {ids[j]: at for j, at in starts}))


@pytest.mark.parametrize("name", ["oef-coop", "oef-noncoop", "gavel-ftf", "equal-share"])
def test_jobs_that_take_turns_take_them_in_the_simulated_future_as_live(name: str, tmp_path: Path) -> None:
    """Whose turn it is depends on what the policy remembers. No job ends meanwhile: one that pretends saves nothing."""
    world, path = PretendWorld(tmp_path), tmp_path / "state"
    header = Header(CLUSTER, SPEEDS, 0.0, name, {}, SETTINGS, {}, {})
    make(open_directory(path), header)
    with closing(open_writer(path / "events.db", EVENTS)) as connection:
        log = open_log(connection)
        world.state = log.state
        world.connect()
        for number, tenant in enumerate("aabccc"):
            spec = JobSpec(f"job-{number}", tenant, "m", 0.0, 1 + (number == 2), 20.0 * 900)
            world.commands[spec.id] = Command("sleep 900", grace_s=1.0)
            world.inbox.put(Submit(spec, world.commands[spec.id]))
        presents: list[Origin] = []
        live = Decided(log.state)

        def tick(state: State) -> None:
            if not presents and state.now_s >= 17.0:
                log.commit(0)
                presents.append(origin(path))
                live.rows.clear()
            world.inbox.over = state.now_s >= 40.0

        with decide_here(log, settings_from_json(SETTINGS)) as decider:
            run_with(decider, world.engine, log.state, settings_from_json(SETTINGS), BothJournals(log, live), tick)
    world.close()
    simulated = Decided(presents[0].state)
    forward(presents[0], horizon_s=live.rows[-1][0] + 0.5 - presents[0].state.now_s, journal=simulated)

    assert len(live.rows) > 10
    assert sum(bool(stop or start) for _, stop, start in live.rows) > 3
    assert [row[1:] for row in simulated.rows] == [row[1:] for row in live.rows]
    assert [row[0] for row in simulated.rows] == pytest.approx([row[0] for row in live.rows], abs=0.01)
