from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from building import job, profile, setup
from fairlead.model.errors import InputError
from fairlead.rates.factors import RateSource
from fairlead.rates.three_layer import Sensing
from fairlead.sim.truth import World
from fairlead.studies.fairness.journal_audit import audit_journal
from fairlead.studies.journals.folding import state_at
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.simulate import simulate
from fairlead.studies.runs.summary import summarise

# Steep gains nine times from a v100, flat one and a half times; the jobs are long, so both can always use more.
SPEEDS = profile({"steep": {"v100": 9.0, "k80": 1.0}, "flat": {"v100": 1.5, "k80": 1.0}})
JOBS = [
    job(f"{model}-{i}", samples=40_000.0, model=model, tenant=tenant)
    for tenant, model in (("x", "steep"), ("y", "flat"))
    for i in range(8)
]


def journal_of(policy: str, path: Path) -> Path:
    simulate(setup(JOBS, "v100:4,k80:4", policy, SPEEDS), path)
    return path


def test_a_folded_journal_has_the_numbers_of_the_run(tmp_path: Path) -> None:
    result = simulate(setup(JOBS, "v100:4,k80:4", "gavel", SPEEDS), tmp_path / "run.jsonl")
    assert summarise(state_at(tmp_path / "run.jsonl")) == summarise(result.state)


def test_envy_free_shares_leave_a_run_without_envy_and_with_the_sharing_incentive(tmp_path: Path) -> None:
    audit = audit_journal(journal_of("oef-coop", tmp_path / "run.jsonl"))
    assert audit.max_envy is not None
    assert audit.max_envy < 0.1  # whole GPUs in whole rounds
    assert audit.min_sharing_incentive is not None
    assert audit.min_sharing_incentive > 0.95


def test_first_come_first_served_makes_the_second_tenant_envious(tmp_path: Path) -> None:
    audit = audit_journal(journal_of("fifo", tmp_path / "run.jsonl"))
    assert audit.envious is not None
    assert audit.min_sharing_incentive is not None
    assert audit.min_sharing_incentive < 0.9


def test_gpu_hours_by_tenant_add_up_to_what_was_held(tmp_path: Path) -> None:
    path = journal_of("equal-share", tmp_path / "run.jsonl")
    state, audit = state_at(path), audit_journal(path)
    hours = sum(sum(tenant.gpu_hours.values()) for tenant in audit.tenants.values())
    assert hours == pytest.approx(state.busy_gpu_s / 3600)


def test_a_tenant_that_comes_late_does_not_upset_the_audit(tmp_path: Path) -> None:
    late = job("late", samples=1000.0, at=5000.0, model="flat", tenant="z")
    simulate(setup([*JOBS, late], "v100:4,k80:4", "gavel", SPEEDS), tmp_path / "run.jsonl")
    assert set(audit_journal(tmp_path / "run.jsonl").tenants) == {"x", "y", "z"}


def test_a_journal_that_contradicts_itself_is_a_bad_file(tmp_path: Path) -> None:
    path = journal_of("fifo", tmp_path / "run.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[1]]))  # its first job arrives again, much later
    with pytest.raises(InputError, match="contradicts itself"):
        state_at(path)


def test_replaying_a_journal_finds_every_decision_the_same(tmp_path: Path) -> None:
    replayed = replay_journal(journal_of("oef-coop", tmp_path / "run.jsonl"))
    assert replayed.same == replayed.decisions > 0


def test_the_audit_says_which_rates_were_measured_and_which_were_not(tmp_path: Path) -> None:
    declared = World(declared_speeds=(("y", 2.0),))
    made = setup(JOBS, "v100:4,k80:4", "oef-coop", SPEEDS, world=declared)
    simulate(replace(made, sensing=Sensing.THREE_LAYER), tmp_path / "run.jsonl")
    audit = audit_journal(tmp_path / "run.jsonl")

    rates = {(rate.tenant, rate.type): rate for rate in audit.rates}
    assert set(rates) == {("x", "v100"), ("x", "k80"), ("y", "v100"), ("y", "k80")}
    assert rates["y", "v100"].source == RateSource.MEASURED
    assert rates["y", "v100"].factor == pytest.approx(0.5, rel=0.05)
    assert rates["y", "k80"].factor == 1.0
    for tenant in audit.tenants.values():
        assert sum(tenant.rates_by_source.values()) == pytest.approx(sum(tenant.gpu_hours.values()))
    assert audit.tenants["y"].rates_by_source["measured"] > 0


def test_without_sensing_the_audit_says_that_rates_are_those_of_the_profile(tmp_path: Path) -> None:
    audit = audit_journal(journal_of("oef-coop", tmp_path / "run.jsonl"))

    assert {rate.source for rate in audit.rates} == {RateSource.PROFILED}
    assert all(set(tenant.rates_by_source) == {"profiled"} for tenant in audit.tenants.values())
