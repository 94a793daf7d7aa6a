"""Gavel as Hops' paper runs it, one way to read it: latency ratios are the weights of jobs in Gavel's program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fairlead.model.allocation import Level, Shares
from fairlead.model.view import View
from fairlead.policies.gavel import gavel
from fairlead.policies.hops_planner import urgencies
from fairlead.policies.policy import Knows, RoundPolicy
from fairlead.rates.age import latency_ratio


def gavel_by_latency(view: View, memory: None) -> tuple[Shares, None]:
    """Gavel with the weights that jobs have in Hops' program; the paper gives its baselines queues by latency ratio."""
    weights = {"weight": urgencies(latency_ratio(view)), "alike": np.arange(view.jobs)}

    def gather(name: str) -> Any:
        return weights[name] if name in weights else view.gather(name)

    shares, _ = gavel(replace(view, gather=gather), None)
    return shares, None


BY_LATENCY = RoundPolicy(
    name="gavel-by-latency",
    summary="Gavel, with latency ratios as weights.",
    paper="Gavel (OSDI 2020), as Hops' paper may run it",
    level=Level.SHARES,
    allocate=gavel_by_latency,
    knows=frozenset({Knows.LENGTHS}),
)
