"""What restarts cost, learnt from measured ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from building import job
from fairlead.model.cluster import parse_short_form
from fairlead.model.events import Arrived, Cancelled, FirstProgress, Held
from fairlead.policies import ROUND_POLICIES
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.unmeasured import WithUnmeasured
from fairlead.rounds.look import look
from fairlead.rounds.records import Records
from fairlead.rounds.restarting import KEPT, LONGEST_S, MOST_MODELS
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.traces.profiles import load_default_profile

CLUSTER = parse_short_form("v100:4,k80:2")
ESTIMATOR = TableEstimator(load_default_profile(), CLUSTER)
RESNET, BERT = "resnet50", "bert-base"
PROFILED_S = ESTIMATOR.restart_s(RESNET)


def queue(*models: str) -> State:
    state = State(CLUSTER, ESTIMATOR)
    for number, model in enumerate(models):
        state.fold(Arrived(0.0, replace(job(f"j{number}"), model=model)))
    return state


def measure(state: State, j: int, *costs_s: float, warm: bool = False) -> None:
    for cost_s in costs_s:
        state.fold(FirstProgress(state.now_s + 1.0, np.array([j]), np.array([cost_s]), warm))


def seen(state: State) -> list[float]:
    """The costs that a policy sees."""
    costs: list[float] = look(state, ROUND_POLICIES["fifo"], 60.0).restart_s.tolist()
    return costs


def test_the_profile_counts_until_enough_restarts_were_measured() -> None:
    state = queue(RESNET, RESNET, BERT)
    assert seen(state) == [PROFILED_S, PROFILED_S, ESTIMATOR.restart_s(BERT)]

    measure(state, 0, 2.0, 4.0)
    assert seen(state)[0] == PROFILED_S
    measure(state, 0, 3.0)

    assert seen(state) == [3.0, 3.0, ESTIMATOR.restart_s(BERT)]


def test_a_single_start_that_took_long_moves_nothing() -> None:
    state = queue(RESNET)
    measure(state, 0, 2.0, 2.0, 2.0, 2.0, 1e9)

    assert seen(state) == [2.0]


def test_a_cost_is_bounded_whatever_is_reported() -> None:
    state = queue(RESNET)
    measure(state, 0, 1e9, 1e9, 1e9)
    assert seen(state) == [LONGEST_S]

    measure(state, 0, *[-5.0] * KEPT)
    assert seen(state) == [0.0]


def test_old_costs_are_forgotten() -> None:
    state = queue(RESNET)
    measure(state, 0, *[20.0] * 50)
    measure(state, 0, *[4.0] * (KEPT // 2 + 1))

    assert seen(state) == [4.0]


def test_warm_starts_count_for_the_jobs_that_start_warm() -> None:
    state = queue(RESNET, RESNET)
    measure(state, 0, 10.0, 10.0, 10.0)
    measure(state, 1, 0.5, 0.5, 0.5, warm=True)
    assert seen(state) == [10.0, 0.5]

    measure(state, 1, 12.0)  # no process was ready for it

    assert seen(state) == [10.0, 10.0]


def test_a_job_that_arrives_expects_what_others_of_its_model_have_paid() -> None:
    state = queue(RESNET)
    measure(state, 0, 10.0, 11.0, 12.0)

    state.fold(Arrived(state.now_s, replace(job("late"), model=RESNET)))

    assert seen(state) == [11.0, 11.0]


def test_jobs_on_hold_learn_and_jobs_that_have_ended_do_not() -> None:
    state = queue(RESNET, RESNET, RESNET)
    state.fold(Held(1.0, np.array([1]), np.zeros(1)))
    state.fold(Cancelled(1.0, np.array([2])))

    measure(state, 0, 3.0, 3.0, 3.0)

    assert state.restart_s[:3].tolist() == [3.0, 3.0, PROFILED_S]


def test_what_was_learnt_survives_a_snapshot() -> None:
    state = queue(RESNET, BERT)
    measure(state, 0, 3.0, 3.0, 3.0, warm=True)
    measure(state, 1, 7.0, 7.0)

    again = load(dump(state), CLUSTER, ESTIMATOR)
    measure(again, 1, 7.0)

    assert dump(load(dump(state), CLUSTER, ESTIMATOR)) == dump(state)
    assert seen(again) == [3.0, 7.0]


def test_the_state_does_not_grow_with_models_that_were_once_seen() -> None:
    state = State(CLUSTER, WithUnmeasured(ESTIMATOR))
    for j in range(2 * MOST_MODELS + 5):
        state.fold(Arrived(state.now_s, replace(job(f"j{j}"), model=f"model-{j}")))
        measure(state, j, 1.0)

    assert len(state.restart_costs) == 2 * MOST_MODELS
    assert ("model-0", False) not in state.restart_costs


@pytest.mark.parametrize("warm", [False, True])
def test_the_event_reads_back_from_a_journal(warm: bool) -> None:
    records = Records(CLUSTER, ["a", "b"])
    event = FirstProgress(4.0, np.array([1]), np.array([2.5]), warm)

    row = records.to_json(event)
    again = records.from_json(dict(row))

    assert row == {"event": "first_progress", "time_s": 4.0, "jobs": ["b"], "cost_s": [2.5], "warm": warm}
    assert isinstance(again, FirstProgress)
    assert (again.jobs.tolist(), again.cost_s.tolist(), again.warm) == ([1], [2.5], warm)
