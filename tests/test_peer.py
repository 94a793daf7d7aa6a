"""Comparison with Gavel's own simulator, on its traces and its table of speeds.

Gavel lets a new job wait for the next allocation and fills the fastest GPUs first whatever the shares say. We do
neither, so we should come out equal or better.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.model.cluster import parse_short_form
from fairlead.policies import REGISTRY
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.runs.summary import summarise
from fairlead.traces.formats import read_trace
from fairlead.traces.profiles import read_profile

GAVEL = Path(__file__).parents[2] / "shared" / "data" / "gavel"
LOWEST, HIGHEST = 0.75, 1.03  # of Gavel's mean JCT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GAVEL.is_dir(), reason="needs ../shared/data/gavel beside the checkout"),
]


@dataclass(frozen=True)
class Peer:
    """Mean JCT in hours according to Gavel's simulator."""

    trace: str
    cluster: str
    policy: str
    jct_h: float

    def __str__(self) -> str:
        return f"{self.policy}-{self.trace.split('_')[0]}"


PEERS = (
    Peer("g120_l600_s0.trace", "v100:6,p100:6,k80:6", "gavel", 3.875),
    Peer("g120_l600_s0.trace", "v100:6,p100:6,k80:6", "fifo", 5.262),
    Peer("philly_single_n400_l1200_s0.trace", "v100:16,p100:16,k80:16", "gavel", 15.978),
    Peer("philly_single_n400_l1200_s0.trace", "v100:16,p100:16,k80:16", "fifo", 19.483),
)


@pytest.mark.parametrize("peer", PEERS, ids=str)
def test_mean_completion_times_are_those_of_gavel_or_better(peer: Peer) -> None:
    speeds = read_profile(GAVEL / "simulation_throughputs.json")
    trace = read_trace(GAVEL / "traces" / "generated" / peer.trace, format="gavel", profile=speeds)
    made = Setup(parse_short_form(peer.cluster), trace, speeds, REGISTRY[peer.policy], restart_s=0.0)

    summary = summarise(simulate(made).state)

    assert summary.jobs_finished == len(trace.jobs)
    assert LOWEST * peer.jct_h <= summary.jct_s["mean"] / 3600.0 <= HIGHEST * peer.jct_h
