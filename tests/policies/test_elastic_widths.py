"""Which policies use other widths of an elastic job than its reference width, as docs/policies.md says."""

from __future__ import annotations

import re
from pathlib import Path

import fairlead
from fairlead.model.allocation import Level
from fairlead.model.jobs import JobSpec
from fairlead.policies import REGISTRY
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.traces.formats import Trace

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
SPEEDS = Profile(
    "elastic",
    tuple(Speed("m", "v100", gpus, 1, 1.0, 1.0 if gpus == 1 else 0.9, "made up") for gpus in (1, 2, 4)),
    {"m": ModelFacts(restart_s=5.0)},
)


def widths_used(policy: str, gpus: int, jobs: int, widths: tuple[int, ...]) -> set[float]:
    """GPUs that jobs of reference width 2 hold under this policy."""
    specs = tuple(JobSpec(f"j{i}", "t", "m", 0.0, 2, 6000.0, widths) for i in range(jobs))
    run = fairlead.simulate(
        f"v100:{gpus}", Trace(specs, "elastic", "generated"), policy, throughputs=SPEEDS, round="5m"
    )
    return {float(stay["gpus"]) for stay in run.stays.rows()}


def test_the_page_of_policies_names_those_that_use_elastic_widths() -> None:
    said = re.search(r"-->\s*(.*?) choose among them", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert said is not None
    rounds = [policy.name for policy in REGISTRY.values() if policy.level != Level.TASKS]

    elastic = {
        name for name in rounds if (widths_used(name, 4, 1, (1, 2, 4)) | widths_used(name, 2, 3, (1, 2))) - {2.0}
    }

    assert elastic == set(re.findall(r"`([\w-]+)`", said[1]))
