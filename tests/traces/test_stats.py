from __future__ import annotations

import pytest

from fairlead.model.cluster import parse_short_form
from fairlead.model.jobs import JobSpec
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.traces.formats import Trace, read_trace
from fairlead.traces.generate import generate
from fairlead.traces.stats import trace_stats

from .conftest import Shared

# One step takes 1 s on a v100 and 3 s on a k80, at any width.
PROFILE = Profile(
    "two",
    (Speed("m", "v100", 1, 1, 1.0, 1.0, "ours"), Speed("m", "k80", 1, 1, 1.0, 1.0 / 3.0, "ours")),
    {"m": ModelFacts(memory_gib=1.0)},
)
JOBS = (
    JobSpec("a", "x", "m", 0.0, 1, 3600.0),
    JobSpec("b", "y", "m", 1800.0, 2, 7200.0),
    JobSpec("c", "y", "m", 3600.0, 1, None),
    JobSpec("d", "z", "other", 7200.0, 1, 10.0),
)
TRACE = Trace(JOBS, "four", "fairlead")


def test_stats_without_a_cluster_are_on_the_reference_type() -> None:
    stats = trace_stats(TRACE, PROFILE)
    assert (stats.jobs, stats.unknown, stats.span_s, stats.reference, stats.load) == (4, 2, 7200.0, "v100", None)
    assert stats.widths == {1: 3, 2: 1}
    assert stats.models == {"m": 3, "other": 1}
    assert stats.tenants == {"y": 2, "x": 1, "z": 1}
    assert stats.gpu_hours_by_tenant == pytest.approx({"y": 4.0, "x": 1.0})
    assert stats.gpu_hours == pytest.approx(5.0)
    assert (stats.duration_s.mean, stats.duration_s.max) == pytest.approx((5400.0, 7200.0))
    assert stats.arrivals_per_h == pytest.approx(1.5)


def test_load_on_a_cluster_follows_its_definition() -> None:
    stats = trace_stats(TRACE, PROFILE, parse_short_form("v100:6,k80:2"))
    mean_time = 8 / (6 * 1 + 2 / 3)  # of a step, at the mean rate
    assert stats.gpu_hours == pytest.approx(5.0 * mean_time)
    assert stats.load == pytest.approx(5.0 * 3600 * mean_time / (8 * 7200.0 * 4 / 3))


def test_a_job_that_names_its_types_counts_on_those_only() -> None:
    trace = Trace((JobSpec("a", "x", "m", 0.0, 1, 3600.0, types=("k80",)),), "one", "fairlead")
    assert trace_stats(trace, PROFILE, parse_short_form("v100:6,k80:2")).gpu_hours == pytest.approx(3.0)


def test_an_empty_trace_has_no_statistics() -> None:
    stats = trace_stats(Trace((), "none", "fairlead"), PROFILE, parse_short_form("v100:4"))
    assert (stats.jobs, stats.load, stats.duration_s.mean, stats.gpu_hours) == (0, None, None, 0.0)


def test_a_generated_trace_has_the_load_that_was_asked_for(default_profile: Profile) -> None:
    cluster = parse_short_form("v100:16,p100:16,k80:16")
    trace = generate(cluster, default_profile, jobs=20_000, load=0.7, seed=3)
    assert trace_stats(trace, default_profile, cluster).load == pytest.approx(0.7, rel=0.05)


def test_the_philly_csv_has_the_gpu_hours_of_its_own_column(shared: Shared, default_profile: Profile) -> None:
    path = shared("philly-derived/philly.csv")
    gpu_s = sum(float(line.split(",")[3]) for line in path.read_text().splitlines()[1:] if line)
    stats = trace_stats(read_trace(path, profile=default_profile), default_profile)
    assert stats.gpu_hours == pytest.approx(gpu_s / 3600.0, rel=1e-9)
    assert stats.unknown == 0
    assert (stats.duration_s.p50, stats.duration_s.p90) == pytest.approx((1144, 11_265), rel=0.001)
