"""The API explains jobs: by role, with checked remedies, and only so often."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fairlead.model.events import Cancelled, Started
from fairlead.model.explanation import read_explanation
from fairlead.policies import ROUND_POLICIES
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.service.api.limits import Limits
from fairlead.service.store.tokens import Role
from serving import World, world


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def decide_now(here: World) -> None:
    """What the scheduler would do in a round."""
    state, policy = here.log.state, ROUND_POLICIES["fifo"]
    state.pass_time(time.time())
    decision, _ = decide(look(state, policy, 60.0), policy, Memory())
    here.log.decision(decision)
    state.fold(decision)
    here.log.touch(decision)
    count = len(decision.start)
    if count:
        here.happen(Started(state.now_s, decision.start, np.ones(count), np.full(count, state.now_s)))
    here.log.commit(here.log.taken)


def crowd(here: World) -> tuple[str, str]:
    """A job that holds all V100s, and one of another tenant that waits for them."""
    big = here.submit(tenant="big", model="even", resources={"accelerators": {"v100": 4}}, steps=10**6)
    small = here.submit(tenant="small", model="even", resources={"accelerators": {"v100": 2}}, steps=10)
    here.take()
    decide_now(here)
    return big, small


def test_a_waiting_job_is_explained_with_a_remedy_that_was_simulated(here: World) -> None:
    big, small = crowd(here)

    response = here.client.get(f"/v1/jobs/{small}/explain", headers=here.admin)

    assert response.status_code == 200, response.text
    answer = read_explanation(response.json())
    assert (answer.job, answer.phase, answer.code) == (small, "waiting", "Order")
    assert [holder.job for holder in answer.holders] == [big]
    assert "submitted again on k80 too" in [remedy.sentence.split(":")[0] for remedy in answer.remedies]
    quick = here.client.get(f"/v1/jobs/{small}/explain", params={"remedies": "false"}, headers=here.admin).json()
    assert (quick["remedies"], quick["expected_s"]) == ([], None)
    assert quick["unchecked"] == "remedies were not asked for"
    running = here.client.get(f"/v1/jobs/{big}/explain", headers=here.admin).json()
    assert running["code"] == "Running"
    assert running["stay"]["type"] == "v100"


def test_a_member_sees_counts_of_other_tenants_and_none_of_their_jobs(here: World) -> None:
    big, small = crowd(here)
    member = here.token(Role.MEMBER, "small")

    response = here.client.get(f"/v1/jobs/{small}/explain", headers=member)

    assert response.status_code == 200, response.text
    (others,) = response.json()["holders"]
    assert (others["job"], others["tenant"], others["jobs"], others["gpus"]) == (None, None, 1, {"v100": 4})
    assert f'"{big}"' not in response.text
    assert '"big"' not in response.text
    assert here.client.get(f"/v1/jobs/{big}/explain", headers=member).status_code == 404


def test_jobs_that_the_scheduler_does_not_have_are_explained_from_their_rows(here: World) -> None:
    id_ = here.submit(model="even", resources={"accelerators": {"v100": 1}}, steps=10)
    assert here.client.get(f"/v1/jobs/{id_}/explain", headers=here.admin).json()["code"] == "Submitted"

    here.take()
    here.happen(Cancelled(time.time(), np.array([0])))
    here.log.touch(Cancelled(time.time(), np.array([0])))
    here.log.commit(here.log.taken)
    here.log.forget(np.array([0]))

    answer = here.client.get(f"/v1/jobs/{id_}/explain", headers=here.admin).json()
    assert (answer["code"], answer["ran_s"]) == ("Cancelled", None)
    assert answer["sentence"].startswith("it was cancelled ")


def test_a_caller_that_asks_too_often_is_refused_and_others_are_not(tmp_path: Path) -> None:
    limits = Limits(explanations_per_s=1e-6, explanations_burst=1.0)
    with world(tmp_path, limits) as here:
        _, small = crowd(here)
        path, member = f"/v1/jobs/{small}/explain?remedies=false", here.token(Role.MEMBER, "small")
        assert here.client.get(path, headers=here.admin).status_code == 200
        refused = here.client.get(path, headers=here.admin)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "too_many_requests"
        assert here.client.get(path, headers=member).status_code == 200


def test_while_too_many_wait_for_an_explanation_the_next_is_refused(tmp_path: Path) -> None:
    with world(tmp_path, Limits(explanations_waiting=0)) as here:
        _, small = crowd(here)
        refused = here.client.get(f"/v1/jobs/{small}/explain", headers=here.admin)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_busy")
