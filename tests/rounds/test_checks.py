"""Speeds that a tenant declared are checked on every type that its jobs could use, at a bounded cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from building import job, profile, run_checked, setup
from fairlead.model.decision import Decision
from fairlead.model.events import Lost, TenantSet
from fairlead.model.jobs import JobSpec
from fairlead.model.quotas import Quota
from fairlead.policies import as_round_policy
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.look import look
from fairlead.rounds.loop import settings_from_json, settings_to_json
from fairlead.rounds.model_trials import fails_because_of_the_type
from fairlead.rounds.state import State
from fairlead.sim.truth import World
from fairlead.studies.journals.folding import open_state
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.simulate import Result, Setup

ROUND_S = 360.0
SHARE = 0.05
SPEEDS = profile({"m": {"v100": 4.0, "k80": 1.0}, "n": {"v100": 4.0, "k80": 1.0}})
LONG = 300_000.0  # samples


def two_tenants(samples: float = LONG, *, gpus: int = 1) -> list[JobSpec]:
    """Each tenant could fill one type; "fifo-sticky" leaves a where it started, on v100, and b on k80."""
    a = [job(f"a{i}", 1, samples, model="m", tenant="a") for i in range(4)]
    b = [job(f"b{i}", gpus, samples / 4, model="n", tenant="b") for i in range(4 // gpus)]
    return [*a, *b]


def simulated(
    folder: Path, jobs: list[JobSpec], policy: str = "fifo-sticky", share: float = SHARE, factor: float = 1.0
) -> tuple[Result, list[Decision], Setup]:
    world = World(declared_speeds=() if factor == 1.0 else (("b", factor),))
    made = setup(jobs, "v100:4,k80:4", policy, SPEEDS, world=world, restart_s=30.0, round_s=ROUND_S, check_share=share)
    made = replace(made, sensing=Sensing.THREE_LAYER)
    result, _ = run_checked(made, folder / "run.jsonl")
    return (
        result,
        [record for record in JournalReader(folder / "run.jsonl").records() if isinstance(record, Decision)],
        made,
    )


def checked_on(decisions: list[Decision], state: State) -> dict[str, list[str]]:
    """By tenant: the types on which jobs were started to be checked."""
    found: dict[str, list[str]] = {}
    for decision in decisions:
        for j, spot in zip(decision.start.tolist(), decision.spots, strict=True):
            if j in decision.trials:
                type_ = state.cluster.types[state.cluster.node_type[spot[0][0]]]
                found.setdefault(state.specs[j].tenant, []).append(type_)
    return found


def test_a_type_on_which_a_tenant_never_ran_is_checked_once(tmp_path: Path) -> None:
    result, decisions, _ = simulated(tmp_path, two_tenants())

    assert checked_on(decisions, result.state) == {"a": ["k80"], "b": ["v100"]}


def test_what_a_check_measures_replaces_what_was_declared(tmp_path: Path) -> None:
    result, _, _ = simulated(tmp_path, two_tenants(), factor=3.0)

    state = result.state
    group = (state.tenants["b"], int(state.model[state.position["b0"]]))
    v100 = state.cluster.types.index("v100")
    factor = state.measured.factor(group)
    assert factor is not None
    assert factor[v100] == pytest.approx(1 / 3)


def test_jobs_change_places_for_a_check_and_all_of_them_keep_running(tmp_path: Path) -> None:
    _, decisions, _ = simulated(tmp_path, two_tenants())

    begins = [decision for decision in decisions if set(decision.trials) & set(decision.start.tolist())]
    assert begins
    for decision in begins:
        assert set(decision.stop.tolist()) == set(decision.start.tolist())


def test_a_wide_job_changes_places_with_several_narrow_ones(tmp_path: Path) -> None:
    result, decisions, _ = simulated(tmp_path, two_tenants(gpus=2))

    state = result.state
    wide = next(d for d in decisions for j in d.trials if state.specs[j].tenant == "b")
    assert sorted(state.specs[j].tenant for j in wide.start.tolist()) == ["a", "a", "b"]
    assert set(wide.stop.tolist()) == set(wide.start.tolist())


def test_checks_cost_a_tenant_at_most_the_stated_share_of_its_gpu_time(tmp_path: Path) -> None:
    result, decisions, _ = simulated(tmp_path, two_tenants())

    state = result.state
    first = next(decision for decision in decisions if decision.trials)
    assert first.time_s >= (ROUND_S + 2 * 30.0) / SHARE / 4  # four GPUs
    for (tenant, _), cost in state.trials.cost.items():
        own = np.flatnonzero(state.tenant[: state.jobs] == tenant)
        assert 0 < cost.gpu_s <= SHARE * state.attained_at(own, state.now_s).sum()


def test_a_tenant_that_uses_little_gpu_time_is_not_checked(tmp_path: Path) -> None:
    _, decisions, _ = simulated(tmp_path, two_tenants(4_000.0))

    assert not any(decision.trials for decision in decisions)


def test_a_tenant_without_competitors_is_not_checked(tmp_path: Path) -> None:
    _, decisions, _ = simulated(tmp_path, [spec for spec in two_tenants() if spec.tenant == "b"])

    assert not any(decision.trials for decision in decisions)


def test_a_share_of_zero_switches_checks_off(tmp_path: Path) -> None:
    _, decisions, _ = simulated(tmp_path, two_tenants(), share=0.0)

    assert not any(decision.trials for decision in decisions)


@pytest.mark.parametrize("policy", ["fifo-sticky", "fft", "sia", "hops"])
def test_checks_are_replayed_exactly(policy: str, tmp_path: Path) -> None:
    _, decisions, _ = simulated(tmp_path, two_tenants(100_000.0), policy, share=0.5, factor=2.0)
    replayed = replay_journal(tmp_path / "run.jsonl")

    assert any(decision.trials for decision in decisions)
    assert replayed.same == replayed.decisions


def test_runs_of_older_versions_had_no_checks() -> None:
    stored = settings_to_json(setup([job("a")]).settings)
    del stored["check_share"]

    assert settings_from_json(stored).check_share == 0.0


def in_the_middle(folder: Path, made: Setup) -> tuple[State, int]:
    """The state during the first check of b, and the job that is checked."""
    state = open_state(made.header())
    for record in JournalReader(folder / "run.jsonl").records():
        state.fold(record)
        for j in state.trials.on:
            if state.specs[j].tenant == "b":
                return state, j
    raise AssertionError("b was never checked")


def test_an_error_during_a_check_excludes_the_type_and_does_not_count_against_the_job(tmp_path: Path) -> None:
    _, _, made = simulated(tmp_path, two_tenants())
    state, j = in_the_middle(tmp_path, made)
    v100 = state.cluster.types.index("v100")
    assert fails_because_of_the_type(state, j)

    state.fold(Lost(state.now_s, np.array([j]), np.array([5.0]), unfit=True))

    of_b = [i for i, spec in enumerate(state.specs) if spec.tenant == "b"]
    assert state.best_rate[of_b, v100].tolist() == [0.0] * 4


def test_a_check_that_has_shown_nothing_is_repeated(tmp_path: Path) -> None:
    """Otherwise a script that seldom reports would never be checked."""
    _, _, made = simulated(tmp_path, two_tenants())
    state, j = in_the_middle(tmp_path, made)

    state.fold(Lost(state.now_s, np.array([j]), np.array([5.0])))

    assert j not in state.trials.on
    v100 = state.cluster.types.index("v100")
    view = look(state, as_round_policy(made.policy), ROUND_S, 1.0)
    assert [check.types for check in view.check_jobs if state.specs[int(view.job[check.row])].tenant == "b"] == [
        (v100,)
    ]


def test_a_tenant_is_not_checked_on_a_type_that_its_quota_denies(tmp_path: Path) -> None:
    _, _, made = simulated(tmp_path, two_tenants())
    state, j = in_the_middle(tmp_path, made)
    state.fold(Lost(state.now_s, np.array([j]), np.array([5.0])))
    state.fold(TenantSet(state.now_s, "b", 1.0, (Quota("v100", 0, borrowing_limit=0),)))

    view = look(state, as_round_policy(made.policy), ROUND_S, 1.0)

    assert not [check for check in view.check_jobs if state.specs[int(view.job[check.row])].tenant == "b"]
