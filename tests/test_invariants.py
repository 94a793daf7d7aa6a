"""What no policy may do, over worlds with faults, restarts, hidden speeds and wrong lengths."""

from __future__ import annotations

import tempfile
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import EVERY_POLICY, THREE, run_checked, setup, setups
from fairlead.policies.policy import Policy
from fairlead.studies.summary import summarise

every_policy = pytest.mark.parametrize("policy", EVERY_POLICY, ids=attrgetter("name"))


@every_policy
@given(data=st.data())
def test_every_journal_is_sound_and_every_job_finishes(policy: Policy, data: st.DataObject) -> None:
    made = data.draw(setups(policy))

    with tempfile.TemporaryDirectory() as folder:
        result, told = run_checked(made, Path(folder) / "journal")

    assert summarise(result.state)["jobs_finished"] == len(made.trace.jobs) == len(told.jobs)


@every_policy
def test_nothing_comes_of_nothing(policy: Policy, tmp_path: Path) -> None:
    result, told = run_checked(setup([], policy=policy, speeds=THREE), tmp_path / "journal")

    summary = summarise(result.state)

    assert not told.records
    assert (summary["jobs_total"], summary["jobs_finished"], summary["makespan_s"]) == (0, 0, None)
    assert set(summary["jct_s"].values()) == {None}


@every_policy
def test_no_jobs_are_allocated_nothing(policy: Policy) -> None:
    from building import Scene
    from fairlead.rounds.decide import Memory, decide

    decision, _ = decide(Scene([]).view(policy=policy), policy, Memory())

    assert not decision.start.size
    assert not decision.stop.size
