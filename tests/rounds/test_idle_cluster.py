"""A cluster without jobs for a while, and events in that time."""

from __future__ import annotations

import pytest

from fairlead.model.cluster import parse_short_form
from fairlead.model.jobs import JobSpec
from fairlead.policies import REGISTRY
from fairlead.rates.profile import Profile, Speed
from fairlead.sim.truth import World
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.runs.summary import summarise
from fairlead.traces.formats import Trace

HOUR = 3600.0


@pytest.mark.parametrize("mtbf_s", [0.0, HOUR], ids=["no faults", "faults"])
def test_a_job_after_a_long_idle_time_starts_at_the_next_round(mtbf_s: float) -> None:
    jobs = tuple(JobSpec(f"job-{i}", "a", "m", i * 10 * HOUR + 100.0, 1, 60.0) for i in range(3))
    profile = Profile("one", (Speed("m", "v100", 1, 1, 1.0, 1.0, "made up"),))
    world = World(mtbf_s=mtbf_s, repair_s=1.0)
    cluster = parse_short_form("v100:4x1")

    done = simulate(Setup(cluster, Trace(jobs, "three", "own"), profile, REGISTRY["fifo"], world=world))

    assert summarise(done.state).jobs_finished == 3
    assert done.state.first_start_s[:3].tolist() == [360.0, 36_360.0, 72_360.0]
