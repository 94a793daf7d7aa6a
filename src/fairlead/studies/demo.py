"""The built-in example: a mixed cluster, a workload, every policy, as many at a time as there are cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from fairlead.model.cluster import parse_short_form
from fairlead.policies import REGISTRY, find_policy
from fairlead.studies.simulate import Setup, simulate
from fairlead.studies.summary import summarise, summarise_run
from fairlead.traces.generate import generate
from fairlead.traces.profiles import load_default_profile

CLUSTER = "a100:8,v100:16,t4:16,k80:8"
JOBS = 160
LOAD = 1.5
TENANTS = 6
WIDTHS = {1: 0.6, 2: 0.2, 4: 0.15, 8: 0.05}


def demo(seed: int = 0) -> Iterator[dict[str, Any]]:
    """The summary of every policy, in the order of the registry; each run is the same however many run at a time."""
    workers = min(os.cpu_count() or 1, len(REGISTRY))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(partial(run_demo, seed=seed), REGISTRY)


def run_demo(policy: str, seed: int = 0) -> dict[str, Any]:
    profile, cluster = load_default_profile(), parse_short_form(CLUSTER)
    trace = generate(
        cluster, profile, jobs=JOBS, load=LOAD, seed=seed, widths=WIDTHS, tenants=TENANTS, durations="gavel"
    )
    result = simulate(Setup(cluster, trace, profile, find_policy(policy)))
    return {"policy": policy, **summarise(result.state), **summarise_run(result.run), "cpu_s": result.cpu_s}
