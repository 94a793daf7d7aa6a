"""What no policy may do, over worlds with faults, restarts, hidden speeds and wrong lengths."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import run_checked, setups
from fairlead.policies import REGISTRY
from fairlead.studies.summary import summarise


@pytest.mark.parametrize("policy", REGISTRY)
@given(data=st.data())
def test_every_journal_is_sound_and_every_job_finishes(policy: str, data: st.DataObject) -> None:
    made = data.draw(setups(policy))

    with tempfile.TemporaryDirectory() as folder:
        result, told = run_checked(made, Path(folder) / "journal")

    assert summarise(result.state)["jobs_finished"] == len(made.trace.jobs) == len(told.jobs)
