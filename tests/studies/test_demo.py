"""The built-in example."""

from __future__ import annotations

from fairlead.policies import REGISTRY
from fairlead.studies.demo import demo


def test_the_demo_is_a_run_of_every_policy() -> None:
    runs = list(demo())

    assert [policy.name for policy, _ in runs] == list(REGISTRY)


def test_all_jobs_of_the_demo_finish() -> None:
    _, run = next(demo())

    said = run()

    assert said["jobs_finished"] == said["jobs_total"] > 0
