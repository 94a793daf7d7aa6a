"""The live demo, end to end: real processes, pre-emptions, checkpoints, an audit."""

from __future__ import annotations

import pytest

from fairlead.service.process import showcase


@pytest.mark.slow
def test_a_dozen_real_jobs_are_trained_with_preemptions_and_audited() -> None:
    seen: list[int] = []

    found = showcase.showcase(seen.append)

    assert [tenant["finished"] for tenant in found["tenants"]] == [showcase.JOBS_EACH] * len(showcase.TENANTS)
    assert sum(tenant["resumed"] for tenant in found["tenants"]) > 0
    assert set(found["audit"]["tenants"]) == set(showcase.TENANTS)
    assert seen[-1] == len(found["jobs"])
