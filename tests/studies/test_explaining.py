"""Why jobs wait, run, were stopped or ended: each reason in the smallest world, with its numbers and remedies."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reason_worlds import WORLDS, decided, never_fits, order, origin_of

from building import THREE, Scene, job, setup, start, stop
from fairlead.model.allocation import Grants, Level
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import NotFoundError
from fairlead.model.events import Cancelled, Failed, Finished, Lost, Started, Stopped
from fairlead.model.explanation import By, Explanation, RemedyKind, read_explanation
from fairlead.model.outcomes import Reason
from fairlead.model.view import View
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.loop import Settings
from fairlead.rounds.renaming import numbered_names, renamed_cluster, renamed_profile, renamed_snapshot
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.studies.explaining.explain import explain
from fairlead.studies.explaining.remedies import explain_with_remedies
from fairlead.studies.explaining.wording import WIDTH, lines
from fairlead.studies.journals.folding import state_at
from fairlead.studies.runs.simulate import simulate

# What each world's sentence contains, and which remedies are offered there.
EXPECTED: dict[Reason, tuple[str, set[RemedyKind]]] = {
    Reason.UNDECIDED: ("the next decision will consider it", set()),
    Reason.CAPACITY: ("asks for 2 GPUs", {RemedyKind.TYPES, RemedyKind.WIDTH, RemedyKind.HOLD}),
    Reason.FRAGMENTED: ("no node had more than 1 of the 2 GPUs", {RemedyKind.WIDTH, RemedyKind.HOLD}),
    Reason.SHARE: ("is 0.5 GPUs, of which 0 were held", {RemedyKind.HOLD}),
    Reason.ORDER: ("which held 4 of the GPUs", {RemedyKind.TYPES}),
    Reason.QUOTA: ("held 1 of the 1 GPUs", {RemedyKind.HOLD, RemedyKind.QUOTA}),
    Reason.HELD: ("its owner put it on hold", {RemedyKind.RELEASE}),
    Reason.WINDOW: ("considered 1 job before it", {RemedyKind.HOLD}),
    Reason.MIN_RUN: ("the first could move after 4m", {RemedyKind.HOLD}),
    Reason.NODE_DOWN: ("asks for 6 GPUs of one type, and 4 were on nodes", {RemedyKind.WIDTH, RemedyKind.NODE}),
    Reason.NEVER_FITS: ("allows only v100; the cluster has 2 x k80", {RemedyKind.TYPES, RemedyKind.ADD}),
    Reason.MEASURING: ("2 of 2 GPU types left", set()),
    Reason.PREEMPTION_LIMIT: ("had cost 0.25 GPU-h of at most 0.278 GPU-h", {RemedyKind.HOLD}),
    Reason.BACK_OFF: ("2 starts in a row came to nothing", {RemedyKind.RELEASE}),
}


def test_every_reason_has_a_world() -> None:
    assert set(WORLDS) == set(EXPECTED) == set(Reason)


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.code)
def test_each_reason_is_explained_with_its_numbers_and_checked_remedies(reason: Reason) -> None:
    origin, id_ = WORLDS[reason]()
    before = dump(origin.state)

    answer = explain_with_remedies(origin, id_)

    words, kinds = EXPECTED[reason]
    assert answer.code == reason.code
    assert words in answer.sentence
    assert {remedy.kind for remedy in answer.remedies} == kinds
    assert answer.unchecked is None
    assert all(remedy.start_s >= answer.time_s for remedy in answer.remedies)
    if answer.expected_s is not None:
        assert all(remedy.start_s < answer.expected_s for remedy in answer.remedies)
    assert dump(origin.state) == before


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.code)
def test_an_answer_fits_a_terminal_and_survives_the_way_through_json(reason: Reason) -> None:
    origin, id_ = WORLDS[reason]()
    answer = explain_with_remedies(origin, id_)

    text = lines(answer)
    assert all(len(line) <= WIDTH for line in text)
    assert reason.code in text[0]
    assert read_explanation(json.loads(json.dumps(answer.to_json()))) == answer


def test_nothing_is_offered_for_a_job_of_a_cluster_that_is_only_watched() -> None:
    origin, id_ = WORLDS[Reason.CAPACITY]()

    answer = explain_with_remedies(replace(origin, header=replace(origin.header, more={"shadow": True})), id_)

    assert (answer.remedies, answer.expected_s) == ((), None)
    assert "Slurm decides" in (answer.unchecked or "")


def test_a_steered_job_on_hold_is_released_where_it_is_held() -> None:
    origin, id_ = WORLDS[Reason.HELD]()

    (remedy,) = explain_with_remedies(
        replace(origin, header=replace(origin.header, more={"steer": "fair"})), id_
    ).remedies

    assert remedy.command is None, "fairlead release has no lasting effect if Slurm holds the job"
    assert "scontrol" in remedy.sentence


def test_a_waiting_job_names_its_holders_their_ends_and_its_place() -> None:
    origin, id_ = order()
    answer = explain_with_remedies(origin, id_)

    (holder,) = answer.holders
    assert (holder.job, holder.tenant, holder.gpus, holder.end_s) == ("a", "u", {"v100": 4}, 10_000.0)
    assert (answer.position, answer.waiting, answer.types) == (1, 1, ("v100",))
    assert answer.expected_s == 10_080.0  # the first round after the end of `a`
    (remedy,) = answer.remedies
    assert (remedy.start_s, remedy.by) == (360.0, By.OWNER)
    assert remedy.sentence == "submitted again on k80 too: starts in about 6m 00s; allowed types are v100"


def test_a_member_of_a_tenant_sees_counts_of_others_and_no_name() -> None:
    jobs = [job("secret-1", 2, 1e5, tenant="u"), job("secret-2", 2, 1e5, tenant="w"), job("b", 4)]
    origin = decided(Scene(jobs, "v100:4").state())

    answer = explain_with_remedies(origin, "b", "t")

    (others,) = answer.holders
    assert (others.job, others.tenant, others.jobs, others.gpus) == (None, None, 2, {"v100": 4})
    assert (others.end_s, others.keeps_until_s) == (None, None)
    everything = json.dumps(answer.to_json()) + "\n".join(lines(answer))
    assert "secret" not in everything
    assert '"u"' not in everything
    with pytest.raises(NotFoundError, match="there is no job"):
        explain(origin.state, origin.settings, "secret-1", "t")


def _b_instead(view: View, memory: None) -> tuple[Grants, None]:
    return Grants(np.array([1]), np.array([0]), np.array([1])), None


B_INSTEAD = Policy("b", "", "", Level.GRANTS, _b_instead)


def stopped_for_b(tenant: str) -> Explanation:
    """Job `a` was on the slow type and gave way to `b`, of another tenant, seen by `tenant`."""
    jobs = [job("a", model="fast", tenant="t"), job("b", tenant="u")]
    state = Scene(jobs, "k80:1", held={"a": ((0, 1),)}, now_s=360.0).state()
    decided(state, B_INSTEAD)
    state.fold(Stopped(360.0, np.array([0]), np.array([100.0])))
    again = load(dump(state), state.cluster, state.estimator)
    for one in (state, again):
        one.pass_time(400.0)
    answer = explain(state, Settings(), "a", tenant)
    assert explain(again, Settings(), "a", tenant) == answer
    return answer


def test_a_stopped_job_knows_which_jobs_took_over_and_what_the_cluster_gained() -> None:
    answer = stopped_for_b("t")
    assert answer.takeover is not None
    assert (answer.takeover.how, answer.takeover.jobs, answer.takeover.others) == ("stopped", (), 1)
    assert answer.takeover.time_s == 360.0
    assert answer.takeover.gain == 0.0  # both are at full speed on the only type
    text = " ".join(lines(answer))
    assert "A decision stopped it 40s ago: 1 job of other tenants started on its nodes" in text


def test_an_anonymous_snapshot_keeps_how_a_job_was_stopped_without_names() -> None:
    state = Scene([job("a"), job("b")], "v100:1", held={"a": ((0, 1),)}, now_s=360.0).state()
    decided(state, B_INSTEAD)
    state.fold(Failed(400.0, np.array([1]), "cannot read /home/ann/data"))
    names = numbered_names(state, THREE)

    body = renamed_snapshot(dump(state), names)
    cluster = renamed_cluster(state.cluster, names)
    again = load(body, cluster, TableEstimator(renamed_profile(THREE, names), cluster))

    assert again.departures[0].taken_by == (names.jobs["b"],)
    assert [departure.detail for departure in again.departures.values()] == ["", ""]


def test_a_job_that_runs_again_forgets_how_it_was_stopped() -> None:
    state = Scene([job("a"), job("b")], "v100:1", held={"a": ((0, 1),)}, now_s=360.0).state()
    decided(state, B_INSTEAD)
    state.fold(Stopped(360.0, np.array([0]), np.array([100.0])))
    assert explain(state, Settings(), "a").takeover is not None

    stop(state, "b", 400.0, 40.0)
    start(state, "a", ((0, 1),), 400.0)

    assert explain(state, Settings(), "a").takeover is None


def test_a_running_job_has_its_speeds_and_why_it_is_on_no_other_type() -> None:
    jobs = [job("a", 2, 1e6, model="fast"), job("b", 2, 1e6), job("c", 2, 1e6, types=("k80",))]
    scene = Scene(jobs, "v100:2,k80:2,p100:4", restart_s=30.0, now_s=20.0)
    state = scene.state()
    start(state, "b", ((0, 2),), 20.0)
    start(state, "a", ((2, 2),), 20.0, rate=4.0)
    state.pass_time(50.0)

    answer = explain(state, Settings(round_s=360.0), "a")

    assert answer.stay is not None
    assert answer.code == "Running"
    assert answer.sentence == "it has held 2 p100 for 30s, at 50% of the speed of its fastest type"
    assert answer.stay.keeps_until_s == 80.0  # twice its restart
    assert answer.stay.end_s == pytest.approx(20.0 + 1e6 / 4.0)
    notes = {row.type: (row.relative, row.note) for row in answer.stay.speeds}
    assert notes == {
        "v100": (1.0, "no GPU is free"),
        "p100": (0.5, "it is here"),
        "k80": (0.25, "no faster than here"),
    }
    assert all(len(line) <= WIDTH for line in lines(answer))


def test_a_move_that_does_not_earn_its_restart_is_given_as_the_reason_to_stay() -> None:
    state = Scene([job("a", 1, 1e6, model="fast")], "v100:1,p100:1", restart_s=400.0).state()
    start(state, "a", ((1, 1),), 0.0, rate=2.0)

    stay = explain(state, Settings(round_s=60.0), "a").stay

    assert stay is not None
    notes = {row.type: row.note for row in stay.speeds}
    assert notes["v100"] == ("a move costs 6m 40s, more than it gains in the 13m 20s for which it is certain to stay")


def test_restarts_and_what_they_cost_are_counted() -> None:
    state = Scene([job("a", 2, 1e4)], "v100:4", restart_s=30.0).state()
    start(state, "a", ((0, 2),), 0.0)
    stop(state, "a", 100.0, 100.0)
    j = np.array([0])

    start_again(state, 200.0, resume_s=230.0)
    assert explain(state, Settings(), "a").lost_gpu_hours == pytest.approx(2 * 30.0 / 3600)

    state.fold(Lost(330.0, j, np.array([150.0])))  # of the 200 samples that it had done
    answer = explain(state, Settings(), "a")
    assert answer.lost_gpu_hours == pytest.approx(2 * (30.0 + 50.0) / 3600)
    assert (answer.restarts, answer.ran_s, answer.waited_s) == (1, 230.0, 100.0)
    assert answer.takeover is not None
    assert answer.takeover.how == "lost"

    start_again(state, 400.0, resume_s=430.0)
    stop(state, "a", 410.0, 150.0)  # before it worked again
    answer = explain(state, Settings(), "a")
    assert answer.lost_gpu_hours == pytest.approx(2 * (30.0 + 50.0 + 10.0) / 3600)
    assert "2 restarts cost it 0.05 GPU-hours." in " ".join(lines(answer))


def start_again(state: State, time_s: float, resume_s: float) -> None:
    """Start job `a` on the first node; it works from `resume_s` on."""
    jobs = np.array([0])
    state.fold(Decision(time_s, Cause.ROUND, jobs[:0], jobs, (((0, 2),),), math.inf, ""))
    state.fold(Started(time_s, jobs, np.array([1.0]), np.array([resume_s])))


def test_the_ends_of_jobs_are_told_as_they_were() -> None:
    state = Scene([job(id_) for id_ in "abc"], "v100:4").state()
    for id_ in "abc":
        start(state, id_, ((0, 1),), 0.0)
    state.fold(Finished(100.0, np.array([0]), np.array([1000.0])))
    state.fold(Failed(200.0, np.array([1]), "exit code 7"))
    state.fold(Cancelled(300.0, np.array([2])))

    answers = {id_: explain(state, Settings(), id_) for id_ in "abc"}

    assert [answer.code for answer in answers.values()] == ["Finished", "Failed", "Cancelled"]
    assert answers["a"].sentence == "it finished 1m 40s after it arrived"
    assert answers["b"].sentence == "it failed 3m 20s after it arrived: exit code 7"
    assert answers["c"].sentence == "it was cancelled 5m 00s after it arrived"
    assert [answer.ran_s for answer in answers.values()] == [100.0, 200.0, 300.0]


def test_a_job_that_can_never_run_says_what_to_change() -> None:
    origin, id_ = never_fits()
    answer = explain_with_remedies(origin, id_)

    assert answer.expected_s is None
    by = {remedy.kind: remedy.by for remedy in answer.remedies}
    assert by == {RemedyKind.TYPES: By.OWNER, RemedyKind.ADD: By.OPERATOR}


def test_a_limit_in_time_is_reported_and_nothing_unchecked_is_offered() -> None:
    origin, id_ = order()
    answer = explain_with_remedies(origin, id_, limit_s=-1.0)

    assert answer.remedies == ()
    assert answer.expected_s is None
    assert answer.unchecked == "the simulation took too long, so that no remedy was checked"


def test_a_policy_that_fails_costs_the_remedies_only() -> None:
    def fails(view: View, memory: None) -> tuple[Grants, None]:
        return None  # type: ignore[return-value]

    origin, id_ = order()
    broken = Policy("broken", "", "", Level.GRANTS, fails)
    answer = explain_with_remedies(origin_of(origin.state, broken), id_)

    assert answer.code == "Order"
    assert answer.unchecked is not None
    assert "policy broken returned None" in answer.unchecked


def test_a_run_of_single_tasks_is_explained_without_remedies(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    simulate(setup([job("a", 2, 1000.0), job("b", 2, 1000.0)], "v100:2", "hare"), path)

    state = state_at(path, 100.0)
    answers = [explain(state, Settings(), id_) for id_ in "ab"]

    words = {"Running": "GPUs on average, which pass from job to job", "Undecided": "none of its tasks has run yet"}
    assert "Running" in {answer.code for answer in answers}
    assert all(words[answer.code] in answer.sentence for answer in answers)
