from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.model.cluster import Cluster, NodeGroup, build_cluster, parse_short_form
from fairlead.model.errors import InputError
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import Profile
from fairlead.traces.formats import Trace, write_trace
from fairlead.traces.generate import PHILLY_WIDTHS, Burst, generate

MIXED = parse_short_form("v100:16,p100:16,k80:16")


def offered_load(trace: Trace, cluster: Cluster, profile: Profile) -> float:
    """The definition in `traces.load`, written out."""
    rates = TableEstimator(profile, cluster)
    work = 0.0
    for job in trace.jobs:
        assert job.steps is not None
        samples = job.steps * rates.samples_per_step(job.model, job.gpus)
        pairs = [(c, r) for c, r in zip(cluster.capacity, rates.best(job.model, job.gpus), strict=True) if r]
        work += job.gpus * samples / (sum(c * r for c, r in pairs) / sum(c for c, _ in pairs))
    gaps = len(trace.jobs) - 1
    span_s = (trace.jobs[-1].arrival_s - trace.jobs[0].arrival_s) * len(trace.jobs) / gaps
    return float(work / (cluster.total_gpus * span_s))


@pytest.mark.parametrize("arrivals", ["poisson", "bursty"])
def test_the_load_is_what_was_asked_for(default_profile: Profile, arrivals: str) -> None:
    trace = generate(MIXED, default_profile, jobs=20_000, load=0.7, arrivals=arrivals, seed=3)
    assert offered_load(trace, MIXED, default_profile) == pytest.approx(0.7, rel=0.05)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(default_profile: Profile, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_trace(generate(MIXED, default_profile, jobs=200, seed=seed, tenants=3), tmp_path / name)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_philly_durations_and_widths_look_like_the_trace(default_profile: Profile) -> None:
    trace = generate(parse_short_form("v100:64"), default_profile, jobs=20_000, seed=1)
    share = Counter(job.gpus for job in trace.jobs)
    assert {g: n / 20_000 for g, n in share.items()} == pytest.approx(PHILLY_WIDTHS, abs=0.01)
    rates = TableEstimator(default_profile, parse_short_form("v100:64"))
    lasts = [
        job.steps * rates.samples_per_step(job.model, job.gpus) / rates.best(job.model, job.gpus)[0]
        for job in trace.jobs
        if job.steps is not None
    ]
    p50, p90 = np.percentile(lasts, [50, 90])
    assert p50 == pytest.approx(1144, rel=0.1)
    assert p90 == pytest.approx(11_265, rel=0.1)


def test_bursty_arrivals_vary_more_than_poisson(default_profile: Profile) -> None:
    def variation(arrivals: str) -> float:
        trace = generate(MIXED, default_profile, jobs=20_000, arrivals=arrivals, burst=Burst(20, 0.1, 50))
        gaps = np.diff([job.arrival_s for job in trace.jobs])
        return float(gaps.std() / gaps.mean())

    assert variation("poisson") == pytest.approx(1.0, abs=0.05)
    assert variation("bursty") > 1.3


def test_tenants_have_zipf_sizes(default_profile: Profile) -> None:
    trace = generate(MIXED, default_profile, jobs=11_000, tenants=3)
    count = Counter(job.tenant for job in trace.jobs)
    assert [count[f"tenant-{k}"] for k in (1, 2, 3)] == pytest.approx([6000, 3000, 2000], rel=0.06)


def test_only_what_can_run_on_the_cluster_is_drawn(default_profile: Profile) -> None:
    small = build_cluster([NodeGroup(1, "k80", 4)])
    trace = generate(small, default_profile, jobs=500, widths={1: 1, 4: 1, 8: 1})
    assert {job.gpus for job in trace.jobs} == {1, 4}
    assert not {"mpt-1b", "mpt-7b"} & {job.model for job in trace.jobs}


def test_a_model_mix_is_kept(default_profile: Profile) -> None:
    trace = generate(MIXED, default_profile, jobs=4000, models={"resnet50": 3, "lstm-lm": 1, "bert-large": 0})
    count = Counter(job.model for job in trace.jobs)
    assert count["resnet50"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert set(count) == {"resnet50", "lstm-lm"}


def test_no_jobs_is_an_empty_trace(default_profile: Profile) -> None:
    assert generate(MIXED, default_profile, jobs=0).jobs == ()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"load": float("nan")}, "load is nan"),
        ({"load": 0.0}, "load is 0.0"),
        ({"jobs": -1}, "jobs is -1"),
        ({"tenants": 0}, "tenants is 0"),
        ({"widths": {0: 1.0}}, "width 0"),
        ({"widths": {64: 1.0}}, "none of these models runs"),
        ({"widths": {1: -1.0}}, "weight of 1 is -1.0"),
        ({"models": {"resnet5": 1.0}}, 'did you mean "resnet50"'),
        ({"models": {"resnet50": 0.0}}, "all weights are 0"),
        ({"arrivals": "possion"}, 'did you mean "poisson"'),
    ],
)
def test_senseless_arguments_are_refused(default_profile: Profile, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        generate(MIXED, default_profile, **{"jobs": 10, **wrong})
