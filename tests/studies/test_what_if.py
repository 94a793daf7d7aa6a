"""A simulated future: without a change it is that of `simulate --from`, and each change does what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from building import ROUND_POLICIES, THREE, job, setup
from fairlead.model.cluster import NodeGroup, parse_short_form
from fairlead.model.decision import Decision
from fairlead.model.errors import FairleadError, ImpossibleError, InputError, NotFoundError
from fairlead.model.events import Arrived, Event
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.model.quotas import Quota
from fairlead.policies import find_round_policy
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.unmeasured import WithUnmeasured
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.records import Record, Records, to_line
from fairlead.rounds.snapshot import dump
from fairlead.rounds.state import State
from fairlead.studies.policy_lab.policy_worlds import make_world
from fairlead.studies.runs.origin import Origin, continue_from, journal_origin
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.what_if.batches import Likeness, copied_length_s, likeness_of, neighbours_of
from fairlead.studies.what_if.changes import (
    AddNodes,
    CancelJob,
    Hypothetical,
    ReshapeJob,
    ScaleArrivals,
    SetTerms,
    SubmitJobs,
    TakeNode,
    UsePolicy,
)
from fairlead.studies.what_if.drawing import Observed, drawn_lengths, history_of, later_jobs
from fairlead.studies.what_if.figures import _measured, is_assumed
from fairlead.studies.what_if.forward import Future, forward
from fairlead.studies.what_if.scenarios import Scenario, ask_what_if


@dataclass
class Tape:
    records: list[Record] = field(default_factory=list)

    def event(self, event: Event) -> None:
        self.records.append(event)

    def decision(self, decision: Decision) -> None:
        self.records.append(decision)


def origin_of(made: Setup, time_s: float, path: Path) -> Origin:
    simulate(made, path)
    return journal_origin(path, time_s)


def small(jobs: list[JobSpec], path: Path, time_s: float = 50.0, cluster: str = "v100:2") -> Origin:
    return origin_of(setup(jobs, cluster, round_s=10.0), time_s, path)


def started(future: Future, job_id: str) -> float:
    start_s = future.jobs[job_id].start_s
    assert start_s is not None
    return start_s


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
def test_without_a_change_the_future_is_that_of_a_continued_run(policy: Policy, tmp_path: Path) -> None:
    made = make_world(policy, 3)
    path, again = tmp_path / "run.jsonl", tmp_path / "again.jsonl"
    whole = simulate(made, path)
    origin = journal_origin(path, whole.state.now_s / 3, policy)
    before, tape = dump(origin.state), Tape()
    continue_from(origin, origin.policy, origin.settings, origin.world(), journal=again)

    forward(origin, journal=tape)

    named = Records(made.cluster)
    theirs = [to_line(named.to_json(record)) for record in JournalReader(again).records()]
    mine = [to_line(named.to_json(record)) for record in tape.records]
    assert mine == theirs[len(theirs) - len(mine) :]
    assert mine
    assert dump(origin.state) == before


def test_every_job_has_its_start_end_and_waiting(tmp_path: Path) -> None:
    origin = small([job("a", 2, 200.0), job("b", 2, 100.0, at=1.0)], tmp_path / "run.jsonl")
    future = forward(origin)

    assert future.jobs["a"].start_s == 50.0
    assert future.jobs["a"].end_s == pytest.approx(100.0)
    assert future.jobs["a"].waiting_s == 0.0
    assert future.jobs["b"].start_s == pytest.approx(100.0)
    assert future.jobs["b"].end_s == pytest.approx(150.0)
    assert future.jobs["b"].waiting_s == pytest.approx(50.0)


def test_a_horizon_leaves_the_later_part_open(tmp_path: Path) -> None:
    origin = small([job("a", 2, 200.0), job("b", 2, 1000.0, at=1.0)], tmp_path / "run.jsonl")
    future = forward(origin, horizon_s=30.0)

    assert future.until_s == 80.0
    assert future.jobs["b"].start_s is None
    assert future.jobs["a"].end_s is None
    assert future.jobs["b"].waiting_s == pytest.approx(30.0)


def test_more_nodes_start_a_waiting_job_at_once(tmp_path: Path) -> None:
    origin = small([job("a", 2, 2000.0), job("b", 2, 100.0, at=1.0)], tmp_path / "run.jsonl")
    assert started(forward(origin), "b") >= 1000.0

    future = forward(origin, (AddNodes(NodeGroup(1, "v100", 2)),))
    assert started(future, "b") <= 60.0
    assert "new-v100-1" not in origin.state.cluster.nodes


def test_a_node_that_is_removed_takes_its_jobs_off_with_their_progress(tmp_path: Path) -> None:
    jobs = [job("a", 4, 400.0), job("b", 4, 4000.0)]
    origin = small(jobs, tmp_path / "run.jsonl", cluster="v100:8")
    ((node, _),) = origin.state.spots[origin.state.position["b"]]
    future = forward(origin, (TakeNode(origin.state.cluster.nodes[node]),))

    assert started(future, "b") == pytest.approx(100.0)
    end_s = future.jobs["b"].end_s
    assert end_s is not None
    assert end_s - started(future, "b") == pytest.approx(1000.0 - 50.0, abs=11.0)


def test_a_cancelled_job_makes_room(tmp_path: Path) -> None:
    origin = small([job("a", 2, 2000.0), job("b", 2, 100.0, at=1.0)], tmp_path / "run.jsonl")
    future = forward(origin, (CancelJob("a"),))

    assert set(future.jobs) == {"b"}
    assert started(future, "b") <= 60.0


def test_a_submitted_job_arrives_now_and_is_part_of_the_future(tmp_path: Path) -> None:
    origin = small([job("a", 2, 200.0)], tmp_path / "run.jsonl")
    future = forward(origin, (SubmitJobs((job("new", 1, 30.0),)),))

    assert started(future, "new") == pytest.approx(100.0)
    assert future.result.state.arrival_s[1] == 50.0


def test_a_waiting_job_with_other_types_or_widths_starts_where_it_then_fits(tmp_path: Path) -> None:
    jobs = [job("a", 4, 8000.0), job("b", 4, 400.0, at=1.0, types=("v100",))]
    origin = small(jobs, tmp_path / "run.jsonl", cluster="v100:4,k80:2")
    assert started(forward(origin), "b") >= 2000.0

    narrow = forward(origin, (ReshapeJob("b", gpus=2, types=()),))
    assert started(narrow, "b") <= 60.0
    spec = narrow.result.state.specs[1]
    assert (spec.gpus, spec.widths, spec.types) == (2, (2,), ())
    assert narrow.result.state.done[1] == pytest.approx(400.0)
    assert origin.state.specs[1].gpus == 4


def test_a_larger_weight_brings_a_tenant_more(tmp_path: Path) -> None:
    jobs = [job(f"{who}{i}", 1, 3000.0, tenant=who) for who in "xy" for i in range(6)]
    made = setup(jobs, "v100:4", "oef-coop", round_s=10.0)
    origin = origin_of(made, 100.0, tmp_path / "run.jsonl")
    done = {}
    for weight in (1.0, 3.0):
        future = forward(origin, (SetTerms("x", weight=weight),), horizon_s=600.0)
        done[weight] = sum(future.result.state.done_at(np.arange(6), future.until_s))
    assert done[3.0] > 1.2 * done[1.0]


def test_a_quota_limits_a_tenant(tmp_path: Path) -> None:
    jobs = [job(f"x{i}", 1, 1000.0, tenant="x") for i in range(4)]
    origin = small(jobs, tmp_path / "run.jsonl", cluster="v100:4", time_s=15.0)
    future = forward(origin, (SetTerms("x", quotas=(Quota("v100", 1, 0),)),), horizon_s=100.0)

    assert future.result.state.running == 1


def test_another_policy_decides_from_now_on(tmp_path: Path) -> None:
    jobs = [job("a", 2, 2000.0), job("b", 2, 2000.0), job("c", 2, 100.0, at=60.0)]
    origin = small(jobs, tmp_path / "run.jsonl", time_s=65.0)
    assert started(forward(origin), "c") >= 2000.0
    assert started(forward(origin, (UsePolicy(find_round_policy("srtf")),)), "c") <= 80.0


def test_lengths_are_drawn_from_finished_jobs_that_ran_longer(tmp_path: Path) -> None:
    jobs = [job(f"x{i}", 1, 10.0 * (i + 1), tenant="x") for i in range(20)]
    origin = small(jobs, tmp_path / "run.jsonl", cluster="v100:4", time_s=5000.0)
    state, unknown = origin.state, JobSpec("new", "x", "even", 5000.0, 1, None)

    drawn = {drawn_lengths(state, {}, seed)(unknown, 0.0) for seed in range(300)}
    assert drawn == {10.0 * (i + 1) for i in range(20)}
    longer = {drawn_lengths(state, {}, seed)(unknown, 125.0) for seed in range(300)}
    assert longer == {10.0 * (i + 1) for i in range(12, 20)}
    assert drawn_lengths(state, {}, 1)(replace(unknown, steps=7.0), 0.0) is None
    assert len(history_of(state).groups["x", "even"].length_s) == 20


def test_a_time_limit_bounds_the_length_of_a_job(tmp_path: Path) -> None:
    jobs = [job(f"x{i}", 1, 10.0 * (i + 1), tenant="x") for i in range(20)]
    state = small(jobs, tmp_path / "run.jsonl", cluster="v100:4", time_s=5000.0).state
    unknown = JobSpec("new", "x", "even", 5000.0, 1, None, run_limit_s=55.0)

    drawn = {drawn_lengths(state, {}, seed)(unknown, 0.0) for seed in range(300)}
    assert drawn == {10.0, 20.0, 30.0, 40.0, 50.0, 55.0}
    assert drawn_lengths(state, {}, 0)(unknown, 500.0) == pytest.approx(555.0), "it has had several runs"
    assert drawn_lengths(state, {}, 1)(replace(unknown, steps=700.0), 0.0) == pytest.approx(55.0), (
        "as declared, at most"
    )
    assert drawn_lengths(state, {}, 1)(replace(unknown, steps=7.0), 0.0) == pytest.approx(7.0)
    assert drawn_lengths(state, {"new": 90.0}, 1)(unknown, 0.0) == 90.0, "the truth, where it is known"


def test_a_job_that_outlived_all_others_lasts_r_times_as_long_with_the_chance_1_by_r(tmp_path: Path) -> None:
    jobs = [job(f"x{i}", 1, 10.0 * (i + 1), tenant="x") for i in range(20)]
    state = small(jobs, tmp_path / "run.jsonl", cluster="v100:4", time_s=5000.0).state
    unknown = JobSpec("new", "x", "even", 5000.0, 1, None)
    lasts = [drawn_lengths(state, {}, seed)(unknown, 500.0) or 0.0 for seed in range(400)]

    assert min(lasts) >= 500.0
    assert np.mean(np.array(lasts) > 1000.0) == pytest.approx(0.5, abs=0.08)
    assert np.mean(np.array(lasts) > 5000.0) == pytest.approx(0.1, abs=0.05)


def in_batches(path: Path, tenants: str, length_s: Callable[[int], float]) -> State:
    """Forty jobs that have ended and four that run since 50 s, in batches of four of one tenant."""
    ended = [job(f"j{i:02}", 1, length_s(i // 4), at=10.0 * i, tenant=tenants[i % len(tenants)]) for i in range(40)]
    new = [job(f"new{i}", 1, 5000.0, at=8000.0, tenant=tenants[0]) for i in range(4)]
    state = small([*ended, *new], path, cluster="v100:44x4", time_s=8050.0).state
    assert state.active == 4
    for j in state.active_jobs.tolist():
        state.specs[j] = replace(state.specs[j], steps=None)
        state.total[j] = np.nan
    return state


def test_jobs_of_a_tenant_that_were_alike_are_drawn_alike(tmp_path: Path) -> None:
    """The first 36 of each batch of four have the same length; a new batch then has one unknown length, not four."""

    def drawn(state: State, seed: int) -> list[float]:
        lengths = drawn_lengths(state, {}, seed)
        return [lengths(state.specs[j], 50.0) or 0.0 for j in state.active_jobs.tolist()]

    alike = in_batches(tmp_path / "alike.jsonl", "x", lambda batch: 60.0 * 1.4**batch)
    chance = likeness_of(_ended_s(alike), neighbours_of(alike)).chance
    assert 0.5 < chance < 0.9  # three of four neighbours are in the same batch
    same = [len(set(drawn(alike, seed))) for seed in range(60)]
    assert np.mean(same) < 2.5

    mixed = in_batches(tmp_path / "mixed.jsonl", "xyzw", lambda batch: 60.0 * 1.4**batch)
    assert likeness_of(_ended_s(mixed), neighbours_of(mixed)).chance < 0.3
    assert np.mean([len(set(drawn(mixed, seed))) for seed in range(60)]) > np.mean(same)


def _ended_s(state: State) -> np.ndarray:
    best, ended = state.best_rate[: state.jobs].max(axis=1), state.phase[: state.jobs] == Phase.FINISHED
    return np.where(ended, state.done[: state.jobs] / best, np.nan)


def test_a_job_that_is_older_than_the_job_before_it_is_not_like_it() -> None:
    likeness = Likeness(0.9, (1.0,))
    assert copied_length_s(likeness, 100.0, 0.0, 1.0, (0.8, 0.0)) == 100.0
    assert copied_length_s(likeness, 100.0, 0.0, 1.0, (0.95, 0.0)) is None
    assert copied_length_s(likeness, 100.0, 100.0, 1.0, (0.0, 0.0)) is None
    # That it has run for so long speaks for the hypothesis that it is like the long job before it.
    assert copied_length_s(likeness, 100.0, 99.0, 0.01, (0.95, 0.0)) == 100.0


def test_jobs_that_still_run_count_as_longer_than_they_have_run() -> None:
    """The product-limit estimator by hand: of four jobs, those of 2 s and 6 s ended; one has run for 3 s, one for 8 s."""
    observed = Observed(np.array([2.0, 3.0, 6.0, 8.0]), np.array([True, False, True, False]))

    # S(2) = 3/4; at 6 s two are left, so S(6) = 3/8; the rest is longer than 8 s.
    assert [observed.at(part) for part in (0.1, 0.24, 0.26, 0.6)] == [2.0, 2.0, 6.0, 6.0]
    assert [observed.at(1 - part) for part in (0.375 / 2, 0.0375)] == pytest.approx([16.0, 80.0])
    assert [observed.survival_at(age_s) for age_s in (1.0, 2.0, 6.0, 9.0)] == pytest.approx([1.0, 0.75, 0.375, 0.375])
    assert observed.above(2.0).at(0.49) == 6.0
    assert observed.above(8.0).length_s.size == 0


def test_later_arrivals_come_at_the_recent_rate_times_the_load(tmp_path: Path) -> None:
    jobs = [job(f"x{i}", 1, 10.0, at=36.0 * i) for i in range(200)]
    origin = small(jobs, tmp_path / "run.jsonl", cluster="v100:4", time_s=7200.0)
    counts = {
        load: np.mean([len(later_jobs(origin.state, load, 7200.0 + 36000.0, seed).jobs) for seed in range(5)])
        for load in (0.5, 1.0, 2.0)
    }
    assert counts[1.0] == pytest.approx(1000, rel=0.1)
    assert counts[2.0] == pytest.approx(2 * counts[1.0], rel=0.1)
    assert counts[0.5] == pytest.approx(counts[1.0] / 2, rel=0.1)
    assert later_jobs(origin.state, 0.0, 9000.0, 0).jobs == ()


def test_jobs_that_arrived_together_do_so_again(tmp_path: Path) -> None:
    jobs = [job(f"x{i}-{k}", 1, 10.0, at=1800.0 * i + k) for i in range(4) for k in range(10)]
    origin = small(jobs, tmp_path / "run.jsonl", cluster="v100:40x4", time_s=7200.0)
    for seed in range(3):
        later = later_jobs(origin.state, 1.0, 7200.0 + 36000.0, seed).jobs
        gaps_s = np.diff([spec.arrival_s for spec in later])
        assert (gaps_s >= 0).all()
        assert np.mean(gaps_s < 2.0) > 0.8


def test_the_same_seed_gives_the_same_future_and_another_seed_another(tmp_path: Path) -> None:
    jobs = [job(f"x{i}", 1, 100.0 + i, at=36.0 * i) for i in range(100)]
    origin = small(jobs, tmp_path / "run.jsonl", cluster="v100:2", time_s=3600.0)
    futures = [forward(origin, (ScaleArrivals(1.5),), horizon_s=3600.0, seed=seed) for seed in (1, 1, 2)]

    assert futures[0].jobs == futures[1].jobs != futures[2].jobs


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (CancelJob("zz"), NotFoundError, "no job"),
        (TakeNode("v100-9"), NotFoundError, "no node"),
        (SetTerms("zz", weight=2.0), NotFoundError, "no tenant"),
        (SetTerms("t", weight=-1.0), InputError, "above 0"),
        (SetTerms("t", quotas=(Quota("h100", 1),)), NotFoundError, "no type"),
        (AddNodes(NodeGroup(1, "h100", 8)), InputError, "no speed on h100"),
        (SubmitJobs((job("a"),)), InputError, "already"),
        (SubmitJobs((job("wide", 64),)), ImpossibleError, "never run"),
        (ReshapeJob("a", gpus=1), InputError, "holds GPUs"),
        (ReshapeJob("b", gpus=64), ImpossibleError, "never run"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(
    change: Hypothetical, error: type[FairleadError], words: str, tmp_path: Path
) -> None:
    origin = small([job("a", 2, 2000.0), job("b", 2, 100.0, at=1.0)], tmp_path / "run.jsonl")
    with pytest.raises(error, match=words):
        forward(origin, (change,))


def test_a_time_at_which_nothing_is_left_is_refused_unless_jobs_are_added(tmp_path: Path) -> None:
    origin = small([job("a", 1, 100.0)], tmp_path / "run.jsonl", 900.0)
    with pytest.raises(InputError, match="no job is active then"):
        ask_what_if(origin, [Scenario("as it is")], 100.0, [0])

    (answer,) = ask_what_if(origin, [Scenario("more", (SubmitJobs((job("b", 1, 10.0),)),))], 100.0, [0]).scenarios
    assert answer.new_jobs == {"b": 0.0}


def test_many_short_rounds_are_simulated_as_fewer_longer_ones(tmp_path: Path) -> None:
    jobs = [job(f"x{i}", 1, 100.0 + i, at=36.0 * i) for i in range(40)]
    origin = small(jobs, tmp_path / "run.jsonl", cluster="v100:2", time_s=360.0)
    ticks: list[float] = []
    answer = ask_what_if(origin, [Scenario("as it is")], 60_000.0, [0], ticks.append)
    assert (answer.own_round_s, answer.round_s) == (10.0, 12.0)
    assert ticks == sorted(ticks)
    assert ticks[-1] == 1.0
    assert any(0 < part < 1 for part in ticks)  # a long simulation shows how far it is
    assert ask_what_if(origin, [Scenario("as it is")], 3600.0, [0]).round_s == 10.0
    assert ask_what_if(origin, [Scenario("as it is")], 3600.0, [0], round_s=30.0).round_s == 30.0


def test_speeds_of_models_that_nobody_measured_are_assumed() -> None:
    cluster = parse_short_form("v100:2,k80:2")
    state = State(cluster, WithUnmeasured(TableEstimator(THREE, cluster)))
    for name, model in (("a", "even"), ("b", "never-seen")):
        state.fold(Arrived(0.0, job(name, model=model)))
    assert [is_assumed(state, j) for j in range(2)] == [False, True]
    assert _measured(state, state, np.arange(2)).tolist() == [True, False]
