"""The built-in example: a comparison of the four systems, two of them also improved, and five baselines on a mixed cluster."""

from __future__ import annotations

from typing import Any

from fairlead.model.cluster import parse_short_form
from fairlead.studies.compare.compare import Request
from fairlead.studies.compare.workloads import Generated, from_generator
from fairlead.studies.policy_lab.plugins import refer
from fairlead.studies.runs.simulate import Setup
from fairlead.traces.formats import Trace
from fairlead.traces.profiles import load_default_profile

CLUSTER = "a100:8,v100:16,t4:16,k80:8"
JOBS = 160
LOAD = 1.5
TENANTS = 6
WIDTHS = {1: 0.6, 2: 0.2, 4: 0.15, 8: 0.05}
POLICIES = (
    *("oef-coop", "fft", "fft-ranked", "hops", "hops-late", "hare-online"),
    *("gavel", "sia", "themis", "las", "fifo"),
)


def demo_request(seed: int = 0, jobs: int = JOBS) -> Request:
    profile, cluster = load_default_profile(), parse_short_form(CLUSTER)
    more = {"widths": WIDTHS, "tenants": TENANTS, "durations": "gavel"}
    no_policy: Any = None  # each run has its own policy
    return Request(
        policies=[refer(name) for name in POLICIES],
        seeds=[seed],
        loads=[None],
        workload=from_generator(profile, cluster, jobs, Generated(LOAD, more)),
        setup=Setup(cluster, Trace((), "", ""), profile, no_policy),
    )
