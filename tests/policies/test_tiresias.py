"""Tiresias by hand: queues, promotion and kept types; and the clairvoyant variant with one queue per type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import Scene, job, profile, setup
from fairlead.model.jobs import JobSpec
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.las import las
from fairlead.policies.tiresias import tiresias, tiresias_fft
from fairlead.rounds.state import State
from fairlead.studies.runs.simulate import simulate

TWO = profile({"fast": {"v100": 4.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}})


def run(name: str, jobs: list[JobSpec], cluster: str = "v100:1", **parameters: Any) -> State:
    policy = ROUND_POLICIES[name].with_parameters(parameters)
    return simulate(setup(jobs, cluster, policy, TWO, round_s=100.0)).state


def end_s(state: State, id_: str) -> float:
    return float(state.end_s[state.position[id_]])


def test_a_job_falls_behind_a_new_one_once_it_has_attained_enough() -> None:
    """One queue boundary at 500 GPU-seconds, no promotion: the old job stops at 500, and the new one runs its 300 s."""
    state = run(
        "tiresias",
        [job("a", samples=1000.0), job("b", samples=300.0, at=200.0)],
        queues_gpu_s=(500.0,),
        promote=0.0,
    )

    assert end_s(state, "b") == 800.0
    assert end_s(state, "a") == 1300.0


def queued_by_hand(
    jobs: list[JobSpec], lasts_s: dict[str, int], gpus: int, border_gpu_s: int, round_s: int
) -> dict[str, int]:
    """End of each job in whole seconds: at every round the first queue before the second, each by arrival, greedily.

    No promotion; a job ends where its work ends, and its GPUs are free from the next round on.
    """
    left_s = dict(lasts_s)
    served = dict.fromkeys(left_s, 0)
    ends: dict[str, int] = {}
    now_s = 0
    while len(ends) < len(jobs):
        here = [spec for spec in jobs if spec.arrival_s <= now_s and spec.id not in ends]
        free = gpus
        for spec in sorted(here, key=lambda spec: served[spec.id] >= border_gpu_s):
            if spec.gpus <= free:
                free -= spec.gpus
                runs_s = min(round_s, left_s[spec.id])
                left_s[spec.id] -= runs_s
                served[spec.id] += spec.gpus * runs_s
                if not left_s[spec.id]:
                    ends[spec.id] = now_s + runs_s
        now_s += round_s
    return ends


@pytest.mark.parametrize("seed", range(10))
def test_end_times_are_those_of_the_queues_worked_through_by_hand(seed: int) -> None:
    random = np.random.default_rng(seed)
    jobs: list[JobSpec] = []
    lasts_s: dict[str, int] = {}
    for i in range(8):
        width = int(random.integers(1, 4))
        seconds, at = int(random.integers(1, 15)) * 70, int(random.integers(0, 10)) * 100
        jobs.append(job(f"j{i}", width, samples=float(seconds * width), at=float(at)))
        lasts_s[f"j{i}"] = seconds
    jobs.sort(key=lambda spec: (spec.arrival_s, spec.id))

    state = run("tiresias", jobs, "v100:4", queues_gpu_s=(500.0,), promote=0.0)

    assert {spec.id: end_s(state, spec.id) for spec in jobs} == queued_by_hand(jobs, lasts_s, 4, 500, 100)


def stream_of_new_jobs() -> list[JobSpec]:
    return [job("a", samples=1000.0), *(job(f"s{k:02d}", samples=100.0, at=200.0 + 100.0 * k) for k in range(60))]


def test_without_promotion_a_stream_of_new_jobs_keeps_an_old_one_waiting() -> None:
    assert end_s(run("tiresias", stream_of_new_jobs(), queues_gpu_s=(500.0,), promote=0.0), "a") > 6000.0


def test_a_job_that_waits_twice_as_long_as_it_ran_is_promoted() -> None:
    """It runs 500 s, waits 1000 s and returns to the first queue, ahead of all later arrivals: done at 2000 s."""
    assert end_s(run("tiresias", stream_of_new_jobs(), queues_gpu_s=(500.0,), promote=2.0), "a") == 2000.0


def test_promotion_is_sooner_with_a_smaller_parameter() -> None:
    ends = [
        end_s(run("tiresias", stream_of_new_jobs(), queues_gpu_s=(500.0,), promote=knob), "a")
        for knob in (1.0, 2.0, 4.0)
    ]

    assert ends == sorted(ends)
    assert len(set(ends)) == 3


def test_a_running_job_keeps_its_type_where_las_would_move_it() -> None:
    """The V100 has become free. `las` moves the job to it; `tiresias` does not move running jobs."""
    scene = Scene([job("a", model="fast")], "v100:1,k80:1", TWO, held={"a": ((1, 1),)}, now_s=360.0)

    assert tiresias(scene.view(), None)[0].types.tolist() == [1]
    assert las(scene.view(), None)[0].types.tolist() == [0]


def test_an_arrival_joins_the_queue_with_the_least_left_to_do() -> None:
    """a takes the first queue: 100 s of `fast` on the V100. b, c join the K80, which is empty, and then the V100 again."""
    jobs = [job("a", samples=400.0, model="fast"), job("b", samples=400.0, model="fast"), job("c", samples=50.0)]

    _, queues = tiresias_fft(Scene(jobs, "v100:1,k80:1", TWO).view(), None)

    assert queues.type.tolist() == [0, 1, 0]


def test_the_shortest_goes_first_in_each_queue_and_no_job_changes_queues() -> None:
    """All on the only type: 1000 s, then at 100 s one of 300 s, which goes first."""
    state = run("tiresias-fft", [job("a", samples=1000.0), job("b", samples=300.0, at=100.0)])

    assert end_s(state, "b") == 400.0
    assert end_s(state, "a") == 1300.0


def test_service_counts_gpus() -> None:
    """Two GPUs for 300 s each are more than one for 500 s."""
    state = run("tiresias-fft", [job("wide", 2, samples=600.0), job("narrow", samples=500.0)], "v100:2")

    assert end_s(state, "narrow") == 500.0
    assert end_s(state, "wide") == 800.0


def test_random_queues_depend_only_on_the_seed() -> None:
    view = Scene([job(f"j{i}") for i in range(20)], "v100:1,k80:1", TWO).view()
    first, again, other = (tiresias_fft(view, None, join_by="random", seed=s)[1].type.tolist() for s in (1, 1, 2))

    assert first == again != other
    assert set(first) == {0, 1}
