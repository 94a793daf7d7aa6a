"""Policies in the service: every one can be tried, and one that cannot decide does not stop the scheduler."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest

from fairlead.engines.live import LiveEngine
from fairlead.engines.pretend.runner import PretendRunner
from fairlead.engines.requests import Command, SetPolicy
from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.policy import Policy
from fairlead.rounds.loop import Settings, When
from fairlead.service.live_policies import configured, tried
from fairlead.service.process.scheduler import keep_deciding
from fairlead.service.store import request_queue
from fairlead.service.store.database import open_writer
from fairlead.service.store.directory import StateDirectory, make, open_directory
from fairlead.service.store.log import Log, open_log
from fairlead.service.store.tables import EVENTS, REQUESTS
from serving import header


@pytest.mark.parametrize("policy", ROUND_POLICIES.values(), ids=attrgetter("name"))
def test_every_policy_decides_a_small_round_with_its_own_parameters(policy: Policy) -> None:
    assert tried(policy) is policy


@pytest.mark.parametrize("bad", [{"fairness": 2.0}, {"lease_s": 0}, {"fairness": float("nan")}], ids=str)
def test_a_value_that_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError):
        configured("themis", bad)


@pytest.mark.parametrize("before", [SetPolicy("las", {"queues_gpu_s": [10.0]}), None], ids=["las", "header"])
def test_a_policy_that_cannot_decide_gives_way_to_the_one_before(tmp_path: Path, before: SetPolicy | None) -> None:
    directory = open_directory(tmp_path / "state")
    make(directory, header())
    writer = open_writer(directory.requests, REQUESTS)
    for request in (before, SetPolicy("themis", {"fairness": 2.0})):
        if request is not None:
            request_queue.append(writer, "x", request)
    job = request_queue.Submission("job", JobSpec("new", "a", "mine", 0.0, 1, None), Command("sleep 3"))
    request_queue.submit(writer, "x", job)
    writer.close()

    assert _live(directory).policy == (("las", {"queues_gpu_s": [10.0]}) if before else ("fifo", {}))
    assert _live(directory).state.phase[0] in (Phase.STARTING, Phase.RUNNING)


def _live(directory: StateDirectory) -> Log:
    """A scheduler from its start until it has nothing more to do."""
    connection, asked = open_writer(directory.events, EVENTS), open_writer(directory.requests, REQUESTS)
    runner = PretendRunner(directory.path, lambda: 1000.0)
    try:
        log = open_log(connection)
        inbox = request_queue.StoredInbox(asked, log, [], lambda timeout_s: False)
        engine = LiveEngine(log.state, runner, inbox, lambda job: request_queue.command_of(asked, job), lambda: 1000.0)
        engine.resume()
        keep_deciding(engine, log, inbox, Settings(10.0, When.EVENTS))
        return log
    finally:
        connection.close()
        asked.close()
