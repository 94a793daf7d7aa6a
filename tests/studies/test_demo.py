from __future__ import annotations

from fairlead.policies import REGISTRY
from fairlead.studies.compare.cases import run_case
from fairlead.studies.compare.compare import make_plan
from fairlead.studies.compare.demo import POLICIES, demo_request


def test_the_demo_shows_the_four_systems_their_improved_forms_and_five_baselines() -> None:
    assert len(POLICIES) == len(set(POLICIES)) == 11
    assert set(POLICIES) <= set(REGISTRY)
    assert {"oef-coop", "fft", "fft-ranked", "hops", "hops-late"} < set(POLICIES)
    assert any("Hare" in REGISTRY[name].paper for name in POLICIES)


def test_every_policy_of_the_demo_finishes_every_job_of_a_small_one() -> None:
    for case in make_plan(demo_request(jobs=20)).cases:
        assert run_case(case).summary.jobs_finished == 20, case.policy.text
