"""Every reason for which a job waits, each in the smallest possible world."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from building import Scene, job, speed
from fairlead.model.allocation import NOWHERE, Answer, Grants, Level, Placement, Shares
from fairlead.model.decision import Cause, Decision, Why
from fairlead.model.events import Cancelled, Held, NodeAdded, NodeRemoved, Released, TenantSet
from fairlead.model.outcomes import REASON_OF_CODE, Reason, Terms
from fairlead.model.quotas import Quota
from fairlead.model.view import View
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.policy import Policy
from fairlead.rates.profile import ModelFacts, Profile
from fairlead.rounds.decide import Memory, Rules, decide
from fairlead.rounds.look import look
from fairlead.rounds.records import Records
from fairlead.rounds.replay import same_reasons
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.rounds.waiting import reason_sentence

FIFO, GAVEL, HOPS = ROUND_POLICIES["fifo"], ROUND_POLICIES["gavel"], ROUND_POLICIES["hops"]


def decided(
    state: State, policy: Policy = FIFO, cause: Cause = Cause.ROUND, rules: Rules | None = None
) -> tuple[Decision, Why]:
    """Decide and fold."""
    decision, _ = decide(look(state, policy, 360.0), policy, Memory(), cause, rules or Rules())
    state.fold(decision)
    assert decision.why is not None
    return decision, decision.why


def outcome(state: State, id_: str) -> tuple[str, int, float, float]:
    """The code, free, a and b in the state."""
    j = state.position[id_]
    code = Reason(int(state.reason[j])).code
    return code, int(state.reason_free[j]), float(state.reason_a[j]), float(state.reason_b[j])


def test_order_names_the_jobs_that_go_first_and_their_gpus() -> None:
    state = Scene([job("a", 2), job("b", 1), job("c", 2)], "v100:4").state()

    _, why = decided(state)

    assert why.outcomes.wanted.tolist() == [2]
    assert outcome(state, "c") == ("Order", 1, 2, 3)
    assert (
        reason_sentence(state, 2) == "Order: the policy served other jobs first, which held 3 of the GPUs it could use"
    )


def test_share_has_what_the_owner_is_promised_and_holds() -> None:
    state = Scene([job("a", samples=1e6), job("b", samples=1e6)], "v100:1").state()

    decided(state, GAVEL)

    assert outcome(state, "b") == ("Share", 0, 0.5, 0.0)


def test_inside_a_round_a_job_that_does_not_fit_waits_for_capacity() -> None:
    state = Scene([job("a", 3), job("b", 2)], "v100:4", held={"a": ((0, 3),)}, now_s=10.0).state()

    decided(state, cause=Cause.EVENT)

    assert outcome(state, "b") == ("Capacity", 1, 0, 0)


def test_inside_a_round_a_job_that_waits_for_its_turn_keeps_that_reason() -> None:
    state = Scene([job("a", 3), job("b", 2)], "v100:4", held={"a": ((0, 3),)}, now_s=360.0).state()
    decided(state)
    state.pass_time(400.0)

    _, why = decided(state, cause=Cause.EVENT)

    assert not why.outcomes.job.size
    assert outcome(state, "b")[0] == "Order"


def test_a_job_that_is_granted_gpus_which_no_node_has_is_fragmented() -> None:
    whole = Profile("made up", (speed("whole", "v100", 1.0), replace(speed("whole", "v100", 0.0), gpus=2, nodes=2)))
    jobs = [job("a", 3), job("b", 3), job("c", 2, model="whole")]
    speeds = Profile("made up", (*whole.speeds, speed("even", "v100", 1.0)), {"even": ModelFacts()})
    state = Scene(jobs, "v100:8", speeds, held={"a": ((0, 3),), "b": ((1, 3),)}).state()

    decided(state)

    assert outcome(state, "c") == ("Fragmented", 2, 1, 2)


def test_a_tenant_at_its_limit_waits_for_its_quota() -> None:
    state = Scene([job("a0", tenant="a"), job("a1", tenant="a")], "v100:4").state()
    state.fold(TenantSet(0.0, "a", 1.0, (Quota("v100", 1, borrowing_limit=0),)))

    decided(state)

    assert outcome(state, "a1") == ("Quota", 3, 1, 1)


def test_quota_has_what_the_tenant_holds_before_what_it_may_hold() -> None:
    state = Scene([job("a0", 2, tenant="a"), job("a1", 2, tenant="a")], "v100:8").state()
    state.fold(TenantSet(0.0, "a", 1.0, (Quota("v100", 3, borrowing_limit=0),)))

    decided(state)

    assert outcome(state, "a1") == ("Quota", 6, 2, 3)


def test_a_job_that_its_quota_kept_from_starting_has_that_reason_although_another_took_the_gpu() -> None:
    state = Scene([job("a0", tenant="a"), job("a1", tenant="a"), job("b", tenant="b")], "v100:2").state()
    state.fold(TenantSet(0.0, "a", 1.0, (Quota("v100", 1, borrowing_limit=0),)))

    decision, _ = decided(state)

    assert decision.start.tolist() == [0, 2]
    assert outcome(state, "a1")[:2] == ("Quota", 0)


def test_jobs_that_started_recently_keep_what_an_earlier_one_needs() -> None:
    state = Scene([job("a", 2), job("b", 2)], "v100:2", held={"b": ((0, 2),)}, now_s=360.0).state()

    decided(state, rules=Rules(min_run_s=600.0))

    assert outcome(state, "a") == ("MinRun", 0, 2, 600.0)
    assert "the first could move after 4m" in str(reason_sentence(state, 0))


def test_nodes_that_are_down_could_have_held_it() -> None:
    state = Scene([job("a", 6)], "v100:8", down=[1]).state()

    decided(state)

    assert outcome(state, "a") == ("NodeDown", 4, 8, 4)


def test_a_job_that_the_nodes_which_are_up_could_just_hold_does_not_wait_for_the_others() -> None:
    state = Scene([job("a", 2), job("b", 4)], "v100:8", down=[1]).state()

    decided(state)

    assert outcome(state, "b") == ("Order", 2, 1, 2)


def test_a_policy_may_report_which_jobs_it_considered() -> None:
    def first_only(view: View, memory: None) -> tuple[Placement, None]:
        considered = np.arange(view.jobs) == 0
        spots = (((0, 1),), *(NOWHERE,) * (view.jobs - 1))
        return Placement(spots, Answer(considered=considered)), None

    state = Scene([job("a"), job("b", 4)], "v100:4").state()

    decided(state, Policy("first", "", "", Level.PLACEMENT, first_only))

    assert outcome(state, "b") == ("Window", 3, 1, 0)


def test_a_job_on_hold_has_that_reason_and_has_no_reason_once_it_is_released() -> None:
    state = Scene([job("a")], "v100:1").state()
    one = np.array([0])

    state.fold(Held(1.0, one, np.array([0.0])))
    assert reason_sentence(state, 0) == "Held: its owner put it on hold"

    state.fold(Released(2.0, one))
    assert reason_sentence(state, 0) is None


def test_a_job_whose_hardware_has_left_never_fits_until_it_comes_back() -> None:
    state = Scene([job("a", model="v")], "v100:1,k80:1").state()  # which has no speed on the K80

    state.fold(NodeRemoved(1.0, 0))
    assert reason_sentence(state, 0) == "NeverFits: no GPU type of this cluster can run it on 1 GPU"

    state.fold(NodeAdded(2.0, "v100-1", "v100", 1, 16.0))
    assert reason_sentence(state, 0) is None


def b_instead(view: View, memory: None) -> tuple[Grants, None]:
    return Grants(np.array([1]), np.array([0]), np.array([1])), None


B_INSTEAD = Policy("b", "", "", Level.GRANTS, b_instead)


def test_a_job_that_starts_has_no_reason_any_more_and_the_one_it_displaces_has_one() -> None:
    state = Scene([job("a"), job("b")], "v100:1", held={"a": ((0, 1),)}, now_s=360.0).state()
    decided(state)
    assert [outcome(state, id_)[0] for id_ in "ab"] == ["Undecided", "Order"]
    state.pass_time(720.0)

    decided(state, B_INSTEAD)

    assert [outcome(state, id_)[0] for id_ in "ab"] == ["Order", "Undecided"]


def test_a_pre_empted_job_has_its_successor_and_the_decision_what_it_gained() -> None:
    state = Scene([job("a"), job("b")], "v100:1,k80:1", held={"a": ((1, 1),)}, now_s=360.0).state()
    slow = float(state.best_rate[0, 1] / state.best_rate[0, 0])

    decision, why = decided(state, B_INSTEAD)

    assert decision.stop.tolist() == [0]
    assert why.successors == {0: ()}  # b starts on the other node
    assert why.gain == pytest.approx(1.0 - slow)

    _, why = decided(Scene([job("a"), job("b")], "v100:1", held={"a": ((0, 1),)}, now_s=360.0).state(), B_INSTEAD)
    assert why.successors == {0: (1,)}
    assert why.gain == 0.0


def test_a_job_that_moves_has_no_successors() -> None:
    state = Scene([job("a", model="fast")], "v100:1,k80:1", held={"a": ((1, 1),)}, now_s=360.0).state()

    decision, why = decided(state)

    assert (decision.stop.tolist(), decision.spots) == ([0], (((0, 1),),))
    assert why.successors == {}


def test_terms_of_the_policy_are_dropped_with_the_reason_that_they_belong_to() -> None:
    state = Scene([job("a", 4, samples=1e6), job("b", 4, samples=1e6)], "v100:4").state()
    decided(state, HOPS)
    assert 1 in state.terms

    state.fold(Held(1.0, np.array([1]), np.array([0.0])))

    assert 1 not in state.terms


def test_hops_adds_its_latency_ratio() -> None:
    state = Scene([job("a", 4, samples=1e6), job("b", 4, samples=1e6)], "v100:4", now_s=0.0).state()

    _, why = decided(state, HOPS)

    assert why.outcomes.labels == ("latency ratio", "priority")
    assert state.terms[1] == {"latency ratio": 0.0, "priority": pytest.approx(state.terms[1]["priority"])}


def test_a_policy_that_returns_terms_is_read_back_from_the_journal_as_it_was() -> None:
    def with_terms(view: View, memory: None) -> tuple[Shares, None]:
        terms = Terms(("price",), np.full((view.jobs, 1), 1.5))
        owners = np.arange(view.jobs)
        return Shares(np.zeros((view.jobs, 1)), owners, view.job, Answer(terms=terms)), None

    state = Scene([job("a", 2), job("b", 2)], "v100:2").state()
    decision, _ = decided(state, Policy("priced", "", "", Level.SHARES, with_terms))

    record = Records(state.cluster, ["a", "b"]).to_json(decision)
    assert record["why"] == {"b": ["Share", 2, 0, 0.0, 0.0, 1.5]}
    again = Records(state.cluster, ["a", "b"]).from_json(dict(record))

    assert isinstance(again, Decision)
    assert same_reasons(decision, again)


def test_a_snapshot_keeps_why_jobs_wait() -> None:
    state = Scene([job("a", 4, samples=1e6), job("b", 4, samples=1e6)], "v100:4").state()
    decided(state, HOPS)

    again = load(dump(state), state.cluster, state.estimator)

    assert reason_sentence(again, 1) == reason_sentence(state, 1)
    assert again.terms == state.terms


def test_codes_are_words_that_can_be_read_back() -> None:
    assert {reason.code: reason for reason in Reason} == REASON_OF_CODE
    assert [Reason.MIN_RUN.code, Reason.NEVER_FITS.code] == ["MinRun", "NeverFits"]


def test_terms_of_an_earlier_policy_and_of_jobs_that_are_over_are_forgotten() -> None:
    state = Scene([job("a", 4, samples=1e6), job("b", 4, samples=1e6)], "v100:4").state()
    decided(state, HOPS)
    assert 1 in state.terms
    state.pass_time(360.0)

    state.fold(TenantSet(360.0, state.specs[1].tenant, 1.0, (Quota("v100", 0, borrowing_limit=0),)))
    decided(state)
    assert not state.terms

    decided(state, HOPS)
    state.fold(Cancelled(360.0, np.array([1])))
    assert not state.terms
    assert reason_sentence(state, 1) is None


def test_a_quota_of_others_does_not_explain_a_job_that_needs_several_types() -> None:
    mixed = job("m", 6, relaxed=True, tenant="x")
    state = Scene([job("a", 4, tenant="x"), mixed], "v100:4,k80:4", held={"a": ((0, 4),)}, now_s=360.0).state()
    state.fold(TenantSet(360.0, "y", 1.0, (Quota("v100", 0),)))

    decided(state)

    assert outcome(state, "m")[0] == "Order"
