"""What no policy may do, over worlds with faults, restarts, hidden speeds and wrong lengths."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import EVERY_POLICY, ROUND_POLICIES, THREE, Scene, run_checked, setup, setups
from fairlead.model.allocation import Allocation
from fairlead.model.view import View
from fairlead.policies.policy import AnyPolicy, Policy
from fairlead.rounds.decide import Memory, decide
from fairlead.studies.runs.simulate import simulate
from fairlead.studies.runs.summary import summarise

every_policy = pytest.mark.parametrize("policy", EVERY_POLICY, ids=attrgetter("name"))
every_round_policy = pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))


@every_policy
@given(data=st.data())
def test_every_journal_is_sound_and_every_job_finishes(policy: AnyPolicy, data: st.DataObject) -> None:
    made = data.draw(setups(policy))

    with tempfile.TemporaryDirectory() as folder:
        result, checked = run_checked(made, Path(folder) / "journal")

    assert summarise(result.state).jobs_finished == len(made.trace.jobs) == len(checked.jobs)


@every_policy
def test_a_run_without_jobs_has_no_records(policy: AnyPolicy, tmp_path: Path) -> None:
    result, checked = run_checked(setup([], policy=policy, speeds=THREE), tmp_path / "journal")

    summary = summarise(result.state)

    assert not checked.records
    assert (summary.jobs_total, summary.jobs_finished, summary.makespan_s) == (0, 0, None)
    assert set(summary.jct_s.values()) == {None}


@every_round_policy
def test_no_jobs_are_allocated_nothing(policy: Policy) -> None:
    decision, _ = decide(Scene([]).view(policy=policy), policy, Memory())

    assert not decision.start.size
    assert not decision.stop.size


def _every_round(policy: Policy) -> Policy:
    """The same policy, whose answers never hold for longer than a round."""

    def allocate(view: View, memory: object) -> tuple[Allocation, object]:
        allocation, memory = policy.allocate(view, memory)
        return replace(allocation, answer=replace(allocation.answer, holds_until_s=view.now_s)), memory

    return replace(policy, allocate=allocate)


@every_round_policy
@settings(max_examples=15)
@given(data=st.data())
def test_rounds_that_are_skipped_would_have_changed_nothing(policy: Policy, data: st.DataObject) -> None:
    made = data.draw(setups(policy))

    skipping = simulate(made).state
    deciding = simulate(replace(made, policy=_every_round(policy))).state

    assert skipping.end_s[: skipping.jobs].tolist() == deciding.end_s[: deciding.jobs].tolist()
    assert skipping.restarts[: skipping.jobs].tolist() == deciding.restarts[: deciding.jobs].tolist()
