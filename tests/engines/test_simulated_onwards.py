"""A simulation that continues a live run: what the journal's checker demands of any journal holds for it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from engine_world import CLUSTER, SPEEDS, Does
from virtual_world import VirtualWorld

from building import ROUND_POLICIES
from checker import check_journal
from fairlead.engines.requests import Hold, Submit
from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.policies import REGISTRY, find_round_policy
from fairlead.policies.policy import Policy
from fairlead.rounds.journal import Header
from fairlead.rounds.loop import Settings, When, run
from fairlead.rounds.snapshot import dump
from fairlead.rounds.state import State
from fairlead.service.store.database import open_writer
from fairlead.service.store.directory import make, open_directory, read_directory
from fairlead.service.store.log import open_log
from fairlead.service.store.tables import EVENTS
from fairlead.sim.truth import World
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.origin import Origin, continue_from, service_origin

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

    result = continue_from(start, policy, start.settings(), world, future=later, unknown_lasts_s=20.0, journal=path)

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
        continue_from(start, find_round_policy("las"), start.settings(), World())


def test_what_does_not_fit_behind_a_state_is_refused(directory: Path) -> None:
    start = origin(directory)
    spec = JobSpec("job-1", "t", "m", start.state.now_s + 1.0, 1, 5.0)
    for bad, complaint in ((spec, "in the state already"), (replace(spec, id="new", arrival_s=0.0), "wanted at")):
        with pytest.raises(InputError, match=complaint):
            continue_from(
                start, find_round_policy("las"), start.settings(), World(), future=(bad,), unknown_lasts_s=1.0
            )
