"""Averages over time, on runs that can be drawn by hand."""

from __future__ import annotations

import numpy as np
import pytest

from building import job, setup
from fairlead.model import events as ev
from fairlead.model.decision import Cause, Decision
from fairlead.sim.truth import World
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.runs.summary import summarise
from fairlead.studies.runs.timeline import Timeline, read_series


def watched(made: Setup) -> Timeline:
    line = Timeline(made.cluster)
    simulate(made, watch=line)
    return line


def test_utilisation_is_by_type_and_slice() -> None:
    # Two GPUs of four for the first half of the time, one for the second.
    made = setup([job("a", 1, 1000.0), job("b", 1, 500.0)], "v100:4,k80:4", policy="fifo-sticky")

    series = read_series(watched(made), {}, slices=4, most_tenants=8)

    assert series.utilisation == {"v100": pytest.approx([0.5, 0.5, 0.25, 0.25]), "k80": [0.0] * 4}
    assert series.hour == pytest.approx([h * 1000 / 3600 for h in (0.125, 0.375, 0.625, 0.875)])


def test_a_tenant_is_entitled_to_its_weight_but_to_no_more_than_it_asks_for() -> None:
    # For 500 s both are there, then ann alone, whose job asks for four of eight GPUs.
    made = setup([job("a", 4, 4000.0, tenant="ann"), job("b", 4, 2000.0, tenant="bob")], "v100:8", policy="fifo-sticky")

    series = read_series(watched(made), {"ann": 3.0, "bob": 5.0}, slices=2, most_tenants=8).tenants

    assert series["ann"].entitled == pytest.approx([3 / 8, 0.5])
    assert series["bob"].entitled == pytest.approx([0.5, 0.0])  # 5/8 by weight
    assert series["bob"].share == pytest.approx([0.5, 0.0])


def test_a_long_tail_does_not_squeeze_the_rest() -> None:
    jobs = [job(f"j{i}", 1, 100.0 + i) for i in range(99)] + [job("last", 1, 50_000.0)]
    series = read_series(watched(setup(jobs, "v100:100", policy="fifo-sticky")), {}, slices=50, most_tenants=8)

    assert sum(hour < 200 / 3600 for hour in series.hour) == 40
    assert series.hour == sorted(series.hour)


def test_free_gpus_are_fragments_for_jobs_that_need_more_of_a_node() -> None:
    # One of four GPUs is held all the time. Of the two widths, 4 does not fit on the other three, 1 does.
    made = setup([job("a", 1, 1000.0), job("b", 4, 40.0, at=990.0)], "v100:4", policy="fifo-sticky")

    series = read_series(watched(made), {}, slices=1, most_tenants=8)

    line_s = 1080.0 + 10.0  # b starts at the round after a's end, and runs for 10 s
    assert series.fragmented_gpus == pytest.approx([3 * 0.5 * 1000.0 / line_s])
    assert series.free_gpus == pytest.approx([(3 * 1000.0 + 4 * 80.0) / line_s])


def test_what_is_held_adds_up_to_what_the_summary_says() -> None:
    jobs = [job(f"j{i}", 1 + i % 3, 700.0 + 90 * i, at=50.0 * i, model="fast", tenant=f"t{i % 3}") for i in range(20)]
    made = setup(jobs, "v100:4,k80:4", policy="las", world=World(seed=2, mtbf_s=20_000.0, repair_s=500.0))
    line = Timeline(made.cluster)
    state = simulate(made, watch=line).state

    stays = line.stays()
    held = float((stays.gpus * (stays.end_s - stays.start_s)).sum())
    series = read_series(line, {}, slices=50, most_tenants=8)
    shares = np.sum([t.share for t in series.tenants.values()], axis=0)

    assert held == pytest.approx(state.busy_gpu_s)
    used = np.mean(
        [u * c for t, c in (("v100", 4), ("k80", 4)) for u in series.utilisation[t]]
    )  # both types have as many GPUs, and nodes that are down are few
    assert used / 4 == pytest.approx(summarise(state).gpu_utilisation, rel=0.1)
    assert (shares <= 1 + 1e-9).all()


def test_what_is_held_task_by_task_adds_up_too() -> None:
    jobs = [job(f"j{i}", 1 + i % 3, 7000.0 + 90 * i, at=50.0 * i, model="fast", tenant=f"t{i % 3}") for i in range(20)]
    made = setup(jobs, "v100:4,k80:4", policy="hlas")
    line = Timeline(made.cluster)
    state = simulate(made, watch=line).state

    held = line.stays()
    series = read_series(line, {}, slices=10, most_tenants=8)

    assert float((held.gpus * (held.end_s - held.start_s)).sum()) == pytest.approx(state.busy_gpu_s)
    used = [4 * np.mean(series.utilisation[t]) for t in ("v100", "k80")]
    assert sum(used) / 8 == pytest.approx(summarise(state).gpu_utilisation, rel=1e-6)
    assert series.fragmented_gpus is None


def test_a_job_that_is_held_has_left_its_gpus() -> None:
    line = Timeline(setup([], "v100:4").cluster)
    jobs = np.array([0])
    line.event(ev.Arrived(0.0, job("a", 1, 1000.0)))
    line.decision(Decision(0.0, Cause.ROUND, jobs[:0], jobs, (((0, 2),),), np.inf, ""))
    line.event(ev.Held(10.0, jobs, np.array([5.0])))
    line.event(ev.NodeDown(30.0, 0))

    assert line.stays().end_s.tolist() == [10.0]


def test_nothing_comes_of_nothing() -> None:
    series = read_series(watched(setup([])), {}, slices=3, most_tenants=8)

    assert series.utilisation == {"v100": [0.0, 0.0, 0.0]}
    assert series.tenants == {}
