"""Twelve minutes of what `make soak` does for days."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_policy import registered
from soak import PARTS, Soak


@pytest.mark.slow
def test_clients_that_never_stop_see_every_job_end_as_it_must(tmp_path: Path) -> None:
    with registered():
        soak = Soak(tmp_path, hours=0.2, rate=2.0)
        soak.run()

    assert soak.submitted > 1000
    assert soak.ended + len(soak.clients) == soak.submitted
    assert soak.ended > 0, "no upkeep has checked an end"
    assert [part.hours for part in soak.parts] == pytest.approx(
        [0.2 * n / PARTS for n in range(1, PARTS + 1)], abs=1e-3
    )
