"""A tenant that exaggerates its speeds is found out from the reports of its real processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from live_run import Done, Plan, all_ended, let_end, run_live, training

from building import profile
from fairlead.engines.requests import Request
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Progress
from fairlead.policies import find_round_policy
from fairlead.rates.factors import RateSource
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.look import look
from fairlead.rounds.state import State
from fairlead.studies.fairness.journal_audit import audit_journal
from fairlead.studies.journals.folding import open_state
from fairlead.studies.journals.replaying import replay_journal

POLICY = "oef-coop"
V100, K80 = 0, 1
HONEST = {"v100": 40.0, "k80": 20.0}
DECLARED = {"v100": 120.0, "k80": 20.0}  # three times the truth on the fast type
FOUND_OUT = 3.0  # speedup that policies see; 6 is declared and 2 is true
ROUNDS = 10  # as docs/promises.md states


class Contention:
    """Two tenants with two equal jobs each share one GPU of each type; x submits under a name that promises more.

    The run may end when policies no longer see the declared speedup of x.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next: list[Request] = [
            training(folder, f"{tenant}{n}", tenant, 20_000.0, model)
            for n in range(2)
            for tenant, model in (("x", "declared"), ("y", "honest"))
        ]

    def __call__(self, state: State) -> Sequence[Request] | None:
        if all_ended(state):
            return None
        requests, self._next = self._next, []
        if state.active == 4 and speedup_of_x(state) <= FOUND_OUT:
            let_end(self._folder)
        return requests


def speedup_of_x(state: State) -> float:
    view = look(state, find_round_policy(POLICY), 1.0)
    rate = view.ideal_rate[view.tenant.tolist().index(state.tenants["x"])]
    return float(rate[V100] / rate[K80])


@pytest.mark.slow
def test_an_exaggerating_tenant_is_found_out_from_the_reports_of_its_processes(tmp_path: Path) -> None:
    plan = Plan(
        tmp_path,
        POLICY,
        parse_short_form("v100:1x1,k80:1x1"),
        profile({"honest": HONEST, "declared": DECLARED}),
        {"v100": 1.0, "k80": 0.5},
        sensing=Sensing.THREE_LAYER,
        round_s=2.0,
    )

    done = run_live(plan, Contention(tmp_path))

    assert 1 <= rounds_until_found_out(plan, done) <= ROUNDS
    rates = {(rate.tenant, rate.type): rate for rate in audit_journal(done.journal).rates}
    assert rates["x", "v100"].source == RateSource.MEASURED
    assert rates["x", "v100"].factor < 0.6
    replayed = replay_journal(done.journal)
    assert replayed.same == replayed.decisions


class Standstill(Contention):
    """The job of y came first and is on the fast type; that of x stays on the slow one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._next = [
            training(folder, "y", "y", 20_000.0, "honest"),
            training(folder, "x", "x", 20_000.0, "declared"),
        ]

    def __call__(self, state: State) -> Sequence[Request] | None:
        if all_ended(state):
            return None
        requests, self._next = self._next, []
        if state.active == 2 and speedup_of_x(state) <= FOUND_OUT:
            let_end(self._folder)
        return requests


@pytest.mark.slow
def test_a_tenant_that_stays_on_the_slowest_type_is_checked_on_the_other(tmp_path: Path) -> None:
    """The policy never moves a job; without a check nothing would contradict what x declares about the fast type."""
    plan = Plan(
        tmp_path,
        "fifo-sticky",
        parse_short_form("v100:1x1,k80:1x1"),
        profile({"honest": HONEST, "declared": DECLARED}),
        {"v100": 1.0, "k80": 0.5},
        sensing=Sensing.THREE_LAYER,
        round_s=2.0,
        check_share=1.0,
    )

    done = run_live(plan, Standstill(tmp_path))

    checks = [record for record in done.records() if isinstance(record, Decision) and record.trials]
    assert checks
    rates = {(rate.tenant, rate.type): rate for rate in audit_journal(done.journal).rates}
    assert rates["x", "v100"].source == RateSource.MEASURED
    assert rates["x", "v100"].factor < 0.6
    replayed = replay_journal(done.journal)
    assert replayed.same == replayed.decisions


def rounds_until_found_out(plan: Plan, done: Done) -> int:
    """Rounds from the first report of x on the fast type to those in which policies see about its true speedup."""
    state, reported, rounds = open_state(plan.header), False, 0
    for record in done.records():
        state.fold(record)
        if isinstance(record, Progress):
            reported |= any(state.specs[j].tenant == "x" and state.held_type[j] == V100 for j in record.jobs.tolist())
        rounds += reported and isinstance(record, Decision) and record.cause is Cause.ROUND
        if reported and speedup_of_x(state) <= FOUND_OUT:
            return rounds
    raise AssertionError("x was never found out")
