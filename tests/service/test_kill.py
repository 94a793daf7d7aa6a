"""Nothing is lost and nothing runs twice, wherever kill -9 strikes: scheduler, API, both, shims or jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from kills import VICTIMS, campaign


@pytest.mark.slow
def test_every_acknowledged_job_is_accounted_for_after_sixty_kills(tmp_path: Path) -> None:
    account = campaign(tmp_path, 60, seed=8)

    assert account.kills.total() >= 60
    assert account.kills.keys() == VICTIMS.keys()
