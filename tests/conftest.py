"""What all tests share. Being here, it also lets them import `building` and `checker`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_OF_RAY = re.compile(r"(^|[^a-z])ray([^a-z]|$)")

# Simulations take as long as they take, and every run of the suite sees the same examples;
# `pytest --hypothesis-profile explore` looks further.
settings.register_profile(
    "fairlead", deadline=None, derandomize=True, max_examples=30, suppress_health_check=list(HealthCheck), database=None
)
settings.register_profile("explore", settings.get_profile("fairlead"), derandomize=False, max_examples=400)
settings.load_profile("fairlead")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Tests with `ray` in their names run in one worker, which has the only cluster of Ray; others run anywhere."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class OneWorkerForRay(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "ray" if _OF_RAY.search(nodeid) else nodeid

    return OneWorkerForRay(config, log)
