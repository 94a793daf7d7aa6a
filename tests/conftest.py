"""What all tests share. Being here, it also lets them import `building` and `checker`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Simulations take as long as they take, and every run of the suite sees the same examples;
# `pytest --hypothesis-profile explore` looks further.
settings.register_profile(
    "fairlead", deadline=None, derandomize=True, max_examples=30, suppress_health_check=list(HealthCheck), database=None
)
settings.register_profile("explore", settings.get_profile("fairlead"), derandomize=False, max_examples=400)
settings.load_profile("fairlead")
