"""Faults of nodes, users, administrators and other partitions on a real Slurm that is steered; `steer_faults` has slow ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import steer_faults
from steer_faults import Scene

from slurm_cluster import missing

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fault", steer_faults.QUICK, ids=lambda fault: fault.__name__)
def test_every_job_is_accounted_for_after_a_fault(fault: Callable[[Scene], None], tmp_path: Path) -> None:
    reason = missing(accounting=True)
    if reason is not None:
        pytest.skip(reason)
    scene = Scene(tmp_path, "--look", "0.5s")
    try:
        fault(scene)
        assert not scene.account_for_all(), "steps of two copies were interleaved"
    finally:
        scene.close()
