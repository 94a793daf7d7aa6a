from __future__ import annotations

from fairlead.policies import REGISTRY
from fairlead.studies.demo import JOBS, run_demo


def test_the_demo_ends_with_every_job_finished_and_the_same_numbers_each_time() -> None:
    first, again = run_demo("oef-coop"), run_demo("oef-coop")
    timings = ("cpu_s", "decision_s")
    assert first["jobs_finished"] == JOBS
    assert {k: v for k, v in first.items() if k not in timings} == {k: v for k, v in again.items() if k not in timings}


def test_the_demo_knows_every_policy_by_name() -> None:
    assert {run_demo(name)["policy"] for name in ("fifo", "gavel")} <= set(REGISTRY)
