"""The built-in example: a mixed cluster, a workload, every policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fairlead.model.cluster import parse_short_form
from fairlead.policies import REGISTRY
from fairlead.policies.policy import Policy
from fairlead.studies.simulate import Setup, simulate
from fairlead.studies.summary import summarise, summarise_run
from fairlead.traces.generate import generate
from fairlead.traces.profiles import load_default_profile

CLUSTER = "a100:8,v100:16,t4:16,k80:8"
JOBS = 240
LOAD = 1.5
TENANTS = 6


def demo(seed: int = 0) -> Iterator[tuple[Policy, Callable[[], dict[str, Any]]]]:
    """Each policy with a function that runs it and returns its summary."""
    profile, cluster = load_default_profile(), parse_short_form(CLUSTER)
    widths = {1: 0.6, 2: 0.2, 4: 0.15, 8: 0.05}
    trace = generate(
        cluster, profile, jobs=JOBS, load=LOAD, seed=seed, widths=widths, tenants=TENANTS, durations="gavel"
    )
    for policy in REGISTRY.values():
        yield policy, partial(_run, Setup(cluster, trace, profile, policy))


def _run(setup: Setup) -> dict[str, Any]:
    result = simulate(setup)
    return {"policy": setup.policy.name, **summarise(result.state), **summarise_run(result.run), "cpu_s": result.cpu_s}
