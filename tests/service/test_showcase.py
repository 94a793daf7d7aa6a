"""The live demo, end to end: real processes, pre-emptions, checkpoints, an audit."""

from __future__ import annotations

import pytest

from fairlead.service.process import showcase


@pytest.mark.slow
def test_a_dozen_real_jobs_are_trained_with_preemptions_and_audited() -> None:
    reports: list[int] = []

    outcome = showcase.showcase(reports.append)

    assert [tenant["finished"] for tenant in outcome["tenants"]] == [showcase.JOBS_EACH] * len(showcase.TENANTS)
    assert sum(tenant["resumed"] for tenant in outcome["tenants"]) > 0
    assert set(outcome["audit"]["tenants"]) == set(showcase.TENANTS)
    assert reports[-1] == len(outcome["jobs"])
