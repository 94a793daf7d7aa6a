"""New models are measured on every type for a bounded time before a policy schedules them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import job, profile, run_checked, setup
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, Lost, Started, Stopped, TenantSet
from fairlead.model.jobs import JobSpec
from fairlead.model.quotas import Quota
from fairlead.policies import find_round_policy
from fairlead.rates.three_layer import Sensing, build_estimator
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.look import look
from fairlead.rounds.model_trials import fails_because_of_the_type, types_to_try
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.studies.journals.folding import open_state
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.simulate import Result, Setup

CLUSTER = "v100:2,p100:2,k80:2"
# A job of "odd" is fastest on the type that is slowest for the others.
SPEEDS = profile(
    {
        "usual": {"v100": 8.0, "p100": 4.0, "k80": 2.0},
        "odd": {"v100": 1.0, "p100": 2.0, "k80": 8.0},
        "small": {"k80": 1.0},
    }
)
LARGEST_FIRST = ["v100", "p100", "k80"]  # by memory


def simulated(
    tmp_path: Path, jobs: list[JobSpec], policy: str = "fft", **settings: Any
) -> tuple[Result, list[Decision], Setup]:
    made = replace(
        setup(jobs, CLUSTER, policy, SPEEDS, restart_s=0.0, **settings), sensing=Sensing.THREE_LAYER, all_new=True
    )
    journal = tmp_path / "run.jsonl"
    result, _ = run_checked(made, journal)
    replayed = replay_journal(journal)
    assert replayed.same == replayed.decisions
    return result, [record for record in JournalReader(journal).records() if isinstance(record, Decision)], made


def tried_on(decisions: list[Decision], state: State, id_: str) -> list[str]:
    """The types on which a job was started to be measured, in order."""
    j, cluster = state.position[id_], state.cluster
    starts = ((decision, dict(zip(decision.start.tolist(), decision.spots, strict=True))) for decision in decisions)
    return [cluster.types[cluster.node_type[spots[j][0][0]]] for d, spots in starts if j in d.trials and j in spots]


def test_a_new_model_is_measured_on_every_type_the_largest_memory_first(tmp_path: Path) -> None:
    result, decisions, _ = simulated(tmp_path, [job("a", samples=20_000.0, model="odd")])

    state = result.state
    assert tried_on(decisions, state, "a") == LARGEST_FIRST
    assert not decisions[-1].trials
    assert state.held_type[0] == -1
    cost = state.trials.cost[0, 0]
    assert cost.trials == 3
    assert 0 < cost.gpu_s <= 3 * 360.0  # one GPU, one round a type
    assert result.profiling_gpu_s == cost.gpu_s


def test_after_its_trials_a_job_is_scheduled_by_its_measured_speeds(tmp_path: Path) -> None:
    """Only its own measurements show that the slowest type of all others is the fastest for it."""
    result, decisions, _ = simulated(tmp_path, [job("a", samples=60_000.0, model="odd")])

    spots = [spot for decision in decisions for j, spot in zip(decision.start, decision.spots, strict=True) if j == 0]
    cluster = result.state.cluster
    assert cluster.types[cluster.node_type[spots[-1][0][0]]] == "k80"


def test_a_model_is_measured_once_and_remembered_for_the_next_job_of_its_tenant(tmp_path: Path) -> None:
    jobs = [job("first", samples=9_000.0, model="odd"), job("next", samples=9_000.0, model="odd", at=20_000.0)]
    other = job("other", samples=9_000.0, model="odd", at=40_000.0, tenant="somebody else")

    result, decisions, _ = simulated(tmp_path, [*jobs, other])

    assert tried_on(decisions, result.state, "first") == LARGEST_FIRST
    assert tried_on(decisions, result.state, "next") == []
    assert tried_on(decisions, result.state, "other") == LARGEST_FIRST  # reports of one tenant do not move another


def test_jobs_of_a_new_model_wait_while_one_of_them_is_measured_and_say_so(tmp_path: Path) -> None:
    result, decisions, _ = simulated(tmp_path, [job(name, samples=9_000.0, model="odd") for name in ("a", "b")])

    state = result.state
    first = next(decision for decision in decisions if 1 in decision.start.tolist())
    assert tried_on(decisions, state, "b") == []
    assert not any(1 in decision.start.tolist() for decision in decisions if decision.trials)
    assert first.time_s >= 3 * 360.0


def test_a_trial_takes_gpus_from_running_jobs_and_never_more_than_one_gang_of_a_type(tmp_path: Path) -> None:
    full = [job(f"u{i}", samples=40_000.0, model="usual") for i in range(6)]
    wide = job("w", gpus=2, samples=9_000.0, model="odd", at=3_500.0)
    thin = job("x", samples=9_000.0, model="small", at=3_500.0, tenant="somebody else")

    result, decisions, _ = simulated(tmp_path, [*full, wide, thin])

    state = result.state
    assert tried_on(decisions, state, "w") == LARGEST_FIRST
    assert tried_on(decisions, state, "x") == ["k80"]
    taken = next(decision for decision in decisions if state.position["w"] in decision.trials)
    assert len(set(taken.stop.tolist()) - set(taken.start.tolist())) == 3  # for two GPUs of one trial, one of the other
    assert all(len(decision.trials) <= 3 for decision in decisions)


@pytest.mark.parametrize("policy", ["oef-coop", "gavel", "hops", "hlas-rounds", "fifo"])
def test_any_policy_can_ask_for_trials(policy: str, tmp_path: Path) -> None:
    jobs = [job("a", samples=30_000.0, model="odd"), job("b", samples=30_000.0, model="usual", tenant="u")]

    result, decisions, _ = simulated(tmp_path, jobs, policy, trial_s=60.0)

    assert tried_on(decisions, result.state, "a") == LARGEST_FIRST
    assert tried_on(decisions, result.state, "b") == LARGEST_FIRST


def test_without_a_wish_for_trials_a_new_model_is_scheduled_at_once(tmp_path: Path) -> None:
    result, decisions, _ = simulated(tmp_path, [job("a", samples=9_000.0, model="odd")], "gavel")

    assert not any(decision.trials for decision in decisions)
    assert result.profiling_gpu_s == 0.0


def test_a_job_that_ends_during_its_trials_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    jobs = [job("short", samples=100.0, model="odd"), job("next", samples=9_000.0, model="odd", at=1_000.0)]

    result, decisions, _ = simulated(tmp_path, jobs)

    assert tried_on(decisions, result.state, "short") == ["v100"]
    assert tried_on(decisions, result.state, "next") == ["p100", "k80"]


def test_a_snapshot_in_the_middle_of_a_trial_is_exact(tmp_path: Path) -> None:
    _, _, made = simulated(tmp_path, [job("a", samples=9_000.0, model="odd")])
    records = list(JournalReader(tmp_path / "run.jsonl").records())
    middle = records.index(next(record for record in records if isinstance(record, Decision) and record.trials)) + 3
    state = open_state(made.header())
    for record in records[:middle]:
        state.fold(record)

    again = load(dump(state), state.cluster, open_state(made.header()).estimator)

    assert again.trials.to_json() == state.trials.to_json()
    assert state.trials.on
    for record in records[middle:]:
        state.fold(record)
        again.fold(record)
    assert dump(again) == dump(state)


def test_an_error_on_a_type_after_another_was_measured_excludes_the_type(tmp_path: Path) -> None:
    """As when the memory of the second type is too small. Later jobs of the group do not run there either."""
    _, _, made = simulated(tmp_path, [job("a", samples=9_000.0, model="odd")])
    state = open_state(made.header())
    for record in JournalReader(tmp_path / "run.jsonl").records():
        state.fold(record)
        if state.trials.tried and state.trials.on:
            break
    p100 = state.cluster.types.index("p100")
    assert state.trials.on[0].type == p100
    assert fails_because_of_the_type(state, 0)

    state.fold(Lost(state.now_s, np.array([0]), np.array([5.0]), unfit=True))
    state.fold(Arrived(state.now_s, job("b", at=state.now_s, model="odd")))

    assert state.best_rate[:2, p100].tolist() == [0.0, 0.0]
    assert [state.cluster.types[t] for t in types_to_try(state, 1)] == ["k80"]
    again = load(dump(state), state.cluster, open_state(made.header()).estimator)
    assert again.trials.to_json() == state.trials.to_json()


def quota_world(jobs: list[JobSpec], quotas: dict[str, tuple[Quota, ...]]) -> State:
    """A state in which these jobs have arrived and nothing runs yet; only "usual" is in the profile."""
    known = profile({"usual": {"v100": 8.0, "p100": 4.0, "k80": 2.0}})
    cluster = parse_short_form(CLUSTER)
    state = State(cluster, build_estimator(known, cluster, 0.0, Sensing.THREE_LAYER, unmeasured=True))
    for spec in jobs:
        state.fold(Arrived(state.now_s, spec))
    for tenant, limits in quotas.items():
        state.fold(TenantSet(state.now_s, tenant, 1.0, limits))
    return state


def decided(state: State, cause: Cause = Cause.ROUND) -> Decision:
    """The next decision, folded; what it starts runs at once."""
    policy = replace(find_round_policy("fifo"), trial_s=60.0)
    decision, _ = decide(look(state, policy, 360.0), policy, Memory(), cause)
    state.fold(decision)
    if decision.stop.size:
        state.fold(Stopped(state.now_s, decision.stop, np.zeros(len(decision.stop))))
    starts = len(decision.start)
    state.fold(Started(state.now_s, decision.start, np.ones(starts), np.full(starts, state.now_s), measured=False))
    return decision


def held(state: State, tenant: str, type_: str) -> int:
    of = [j for j, spec in enumerate(state.specs) if spec.tenant == tenant]
    t = state.cluster.types.index(type_)
    return sum(state.cluster.gpus_by_type(state.spots[j]).get(t, 0) for j in of)


@pytest.mark.parametrize("cause", list(Cause))
def test_a_trial_stays_within_the_quota_of_its_tenant(cause: Cause) -> None:
    """One of the two GPUs of the type is free, but the tenant may not hold it too."""
    running = job("usual", model="usual", types=("v100",), tenant="a")
    state = quota_world([running], {"a": (Quota("v100", 1, borrowing_limit=0),)})
    decided(state)
    state.fold(Arrived(state.now_s, job("new", model="new", at=state.now_s, types=("v100",), tenant="a")))

    decided(state, cause)

    assert held(state, "a", "v100") == 1


def test_at_its_quota_a_tenant_makes_room_for_its_own_trial() -> None:
    running = job("usual", model="usual", types=("v100",), tenant="a")
    state = quota_world([running], {"a": (Quota("v100", 1, borrowing_limit=0),)})
    decided(state)
    state.fold(Arrived(state.now_s, job("new", model="new", at=state.now_s, types=("v100",), tenant="a")))

    decision = decided(state)

    assert decision.stop.tolist() == [0]
    assert decision.trials == (1,)


def test_a_trial_takes_no_gpu_that_is_kept_for_another_tenant() -> None:
    new = job("new", gpus=2, model="new", types=("v100",), tenant="a")
    state = quota_world([new], {"b": (Quota("v100", 1, lending_limit=0),)})

    decision = decided(state)

    assert not decision.trials
    assert held(state, "a", "v100") == 0
