"""Rounding of fractional shares to whole gangs, round after round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import Scene, granted, job, profile, speed, start, stop
from fairlead.model.allocation import Shares, Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.jobs import JobSpec
from fairlead.placement.pack import pack
from fairlead.placement.rounding import NOTHING_OWED, Deficits, round_shares
from fairlead.policies import ROUND_POLICIES
from fairlead.rates.profile import ModelFacts, Profile
from fairlead.rounds.look import look
from fairlead.studies.policy_lab.policy_worlds import GPUS

EVEN = profile({"even": dict.fromkeys(GPUS, 1.0), "v": {"v100": 1.0}})
NOBODY = np.zeros(0, dtype=bool)


def shares_of(gpus: Sequence[Sequence[float]], owner_of: Sequence[int] | None = None) -> Shares:
    table = np.array(gpus, dtype=np.float64)
    owners = np.arange(len(table)) if owner_of is None else np.array(owner_of, dtype=np.int64)
    return Shares(table, owners, np.arange(len(table)))


def rounded(scene: Scene, shares: Shares, owed: Deficits = NOTHING_OWED) -> tuple[list[list[int]], Deficits, bool]:
    view = scene.view()
    grants, owed, exact = round_shares(view, shares, owed, np.zeros(len(scene.jobs), dtype=bool))
    return granted(view, grants), owed, exact


@dataclass(frozen=True)
class Turned:
    """What owners (o) were granted by type (t) in every round (r), and how often jobs changed their GPUs."""

    granted: IntArray  # r,o,t
    owed: FloatArray  # r,o,t
    moves: int

    @property
    def mean(self) -> FloatArray:
        return np.asarray(self.granted.mean(axis=0))  # o,t


def turn(jobs: Sequence[JobSpec], cluster: str, shares: Shares, rounds: int) -> Turned:
    """Run this many rounds with the same shares and jobs that never end."""
    state, owed = Scene(jobs, cluster, EVEN).state(), NOTHING_OWED
    granted_gpus, owing, moves = [], [], 0
    for r in range(rounds):
        state.pass_time(360.0 * r)
        view = look(state, ROUND_POLICIES["fifo"], 360.0)
        nobody = np.zeros(view.jobs, dtype=bool)
        grants, owed, _ = round_shares(view, shares, owed, nobody)
        changed: dict[int, Spot] = pack(view, grants, nobody)
        held = set(view.spots)
        for j in held & changed.keys():
            stop(state, jobs[j].id, 360.0 * r, 0.0)
        for j, spot in changed.items():
            if spot:
                start(state, jobs[j].id, spot, 360.0 * r)
                moves += 1
        total = np.zeros(shares.gpus.shape, dtype=np.int64)
        np.add.at(total, (shares.owner_of[grants.jobs], grants.types), grants.gpus)
        granted_gpus.append(total)
        owing.append(owed.gpus)
    return Turned(np.array(granted_gpus), np.array(owing), moves)


def test_whole_shares_are_granted_as_they_are() -> None:
    gpus, owed, exact = rounded(Scene([job("a", 2), job("b")], "v100:2,k80:1", EVEN), shares_of([[2, 0], [0, 1]]))

    assert gpus == [[2, 0], [0, 1]]
    assert not owed.gpus.any()
    assert exact


def test_a_share_within_solver_tolerance_of_a_whole_number_is_that_number() -> None:
    gpus, owed, exact = rounded(Scene([job("a")], "v100:1", EVEN), shares_of([[1 - 1e-8]]))

    assert gpus == [[1]]
    assert not owed.gpus.any()
    assert exact


def test_whole_shares_hold_whatever_is_owed_from_before() -> None:
    """The next round would find the same shares and the same deficits: there is nothing to decide again."""
    before = Deficits(np.arange(2), np.array([[0.5], [-0.5]]))

    gpus, owed, exact = rounded(Scene([job("a"), job("b")], "v100:2", EVEN), shares_of([[1], [1]]), before)

    assert gpus == [[1], [1]]
    assert owed.gpus.tolist() == [[0.5], [-0.5]]
    assert exact


def test_halves_take_turns_and_what_was_not_granted_is_owed() -> None:
    gpus, owed, exact = rounded(Scene([job("a"), job("b")], "v100:1", EVEN), shares_of([[0.5], [0.5]]))

    assert gpus == [[1], [0]]
    assert owed.gpus.tolist() == [[-0.5], [0.5]]
    assert not exact


def test_the_job_that_is_owed_the_larger_part_of_its_gang_goes_first() -> None:
    """0.9 of 1 GPU before 1.1 of 2."""
    gpus, _, _ = rounded(Scene([job("a", 2), job("b")], "v100:2", EVEN), shares_of([[1.1], [0.9]]))

    assert gpus == [[0], [1]]


def test_gpus_that_are_left_go_to_jobs_without_any_and_are_charged() -> None:
    """b is entitled to the K80 only occasionally, but no other job wants it."""
    gpus, owed, exact = rounded(Scene([job("a"), job("b")], "v100:1,k80:1", EVEN), shares_of([[1, 0], [0, 0]]))

    assert gpus == [[1, 0], [0, 1]]
    assert owed.gpus.tolist() == [[0, 0], [0, -1]]
    assert not exact


def test_left_gpus_go_to_the_owner_that_is_owed_most() -> None:
    before = Deficits(np.arange(3), np.array([[0.0], [0.1], [0.4]]))
    scene = Scene([job("a", 2), job("b", 2), job("c", 2)], "v100:2", EVEN)

    gpus, _, _ = rounded(scene, shares_of([[0.0], [0.0], [0.0]]), before)

    assert gpus == [[0], [0], [2]]


def test_left_gpus_go_by_what_owners_are_still_owed() -> None:
    """The first tenant has just been served in full; the second is owed half a round from before."""
    before = Deficits(np.arange(2), np.array([[0.0, 0.0], [0.0, 0.5]]))
    scene = Scene([job("a1", 2), job("a2"), job("b")], "v100:2,k80:1", EVEN)

    gpus, _, _ = rounded(scene, shares_of([[2, 0], [0, 0]], [0, 0, 1]), before)

    assert gpus == [[2, 0], [0, 0], [0, 1]]


def test_a_gang_is_not_granted_types_on_which_it_cannot_run() -> None:
    gpus, _, _ = rounded(Scene([job("a", model="v")], "v100:1,k80:1", EVEN), shares_of([[0.4, 0.6]]))

    assert gpus == [[1, 0]]


def test_pinned_jobs_keep_what_they_hold_and_it_is_charged() -> None:
    scene = Scene([job("a"), job("b")], "v100:1", EVEN, held={"a": ((0, 1),)})
    before = Deficits(np.arange(2), np.array([[-2.0], [2.0]]))

    view = scene.view()

    grants, owed, _ = round_shares(view, shares_of([[0.5], [0.5]]), before, np.array([True, False]))

    assert granted(view, grants) == [[1], [0]]
    assert owed.gpus.tolist() == [[-2.5], [2.5]]


def test_inside_an_owner_the_job_with_the_least_service_goes_first() -> None:
    """a and b belong to one tenant; a has had two GPU-hours."""
    scene = Scene([job("a"), job("b")], "v100:1", EVEN, held={"a": ((0, 1),)}, now_s=7200.0)
    state = scene.state()
    stop(state, "a", 7200.0, 0.0)

    view = look(state, ROUND_POLICIES["fifo"], 360.0)

    grants, _, _ = round_shares(view, shares_of([[1.0]], [0, 0]), NOTHING_OWED, np.zeros(2, dtype=bool))

    assert granted(view, grants) == [[0], [1]]


def test_an_owner_with_several_jobs_gets_as_many_gangs_as_its_share_holds() -> None:
    scene = Scene([job("a"), job("b"), job("c"), job("d")], "v100:4", EVEN)

    gpus, _, exact = rounded(scene, shares_of([[3.0], [1.0]], [0, 0, 0, 1]))

    assert gpus == [[1], [1], [1], [1]]
    assert exact


def test_an_owner_that_is_gone_is_forgotten_and_a_new_one_is_owed_nothing() -> None:
    owed = Deficits(np.array([3, 5, 9]), np.array([[1.0], [2.0], [3.0]]))

    assert owed.of(np.array([4, 5, 10]), 1).tolist() == [[0.0], [2.0], [0.0]]


def test_an_owner_with_nothing_to_run_does_not_accumulate_claims() -> None:
    """A gang of four never fits beside the job that holds one of four GPUs."""
    scene = Scene([job("a", 4), job("b")], "v100:4", EVEN, held={"b": ((0, 1),)})
    owed = NOTHING_OWED

    for _ in range(100):
        _, owed, _ = round_shares(scene.view(), shares_of([[3.0], [1.0]]), owed, np.array([False, True]))

    assert owed.gpus[0, 0] <= 3.0 + 2 * 4


def test_an_owner_that_lives_on_leftovers_does_not_accumulate_debts() -> None:
    """No other owner wanted them, and a share that it is promised later must not wait for a hundred rounds."""
    scene, owed = Scene([job("a")], "v100:1", EVEN), NOTHING_OWED

    for _ in range(100):
        _, owed, _ = rounded(scene, shares_of([[0.0]]), owed)

    assert owed.gpus.tolist() == [[-2.0]]


@pytest.mark.parametrize(
    ("widths", "shares"),
    [
        ([1, 1, 1], [[2 / 3], [2 / 3], [2 / 3]]),
        ([1, 1, 1, 1], [[0.1], [0.3], [0.7], [0.9]]),
        ([2, 2, 2], [[4 / 3], [4 / 3], [4 / 3]]),
    ],
)
def test_over_time_every_job_gets_its_share(widths: list[int], shares: list[list[float]]) -> None:
    jobs = [job(f"j{i}", w) for i, w in enumerate(widths)]
    capacity = round(sum(row[0] for row in shares))

    turned = turn(jobs, f"v100:{capacity}", shares_of(shares), 600)

    assert turned.mean == pytest.approx(np.array(shares), abs=0.03)
    assert turned.granted.sum(axis=(1, 2)).tolist() == [capacity] * 600


def test_over_time_every_tenant_gets_its_share() -> None:
    """Three tenants on two types, each with more jobs than it can hold GPUs."""
    jobs = [job(f"{u}{i}") for u in "abc" for i in range(4)]
    shares = shares_of([[1.5, 0.5], [0.5, 1.5], [1.0, 1.0]], [u for u in range(3) for _ in range(4)])

    turned = turn(jobs, "v100:3,k80:3", shares, 600)

    assert turned.mean == pytest.approx(shares.gpus, abs=0.05)


def test_a_rotation_moves_no_job_more_often_than_once_in_two_rounds() -> None:
    """Half a GPU each: staying a round longer halves the moves."""
    turned = turn([job("a"), job("b")], "v100:1", shares_of([[0.5], [0.5]]), 200)

    assert turned.moves <= 101
    assert turned.mean == pytest.approx(np.array([[0.5], [0.5]]), abs=0.02)


@st.composite
def share_tables(draw: st.DrawFn) -> tuple[list[JobSpec], str, Shares]:
    """Shares that fit the cluster and no gang's width, as a policy may return them."""
    capacity = draw(st.lists(st.integers(1, 6), min_size=1, max_size=2))
    widths = st.integers(1, min(3, max(capacity)))
    jobs = [job(f"j{i}", draw(widths)) for i in range(draw(st.integers(1, 5)))]
    raw = np.array([[draw(st.floats(0, 1)) for _ in capacity] for _ in jobs])
    gpus = raw / np.maximum(raw.sum(axis=0), 1e-9) * capacity
    width = np.array([spec.gpus for spec in jobs])
    gpus *= np.minimum(1.0, width / np.maximum(gpus.sum(axis=1), 1e-9))[:, None]
    cluster = ",".join(f"{gpu}:{count}" for gpu, count in zip(GPUS, capacity, strict=False))
    return jobs, cluster, shares_of(gpus.tolist())


@settings(max_examples=40)
@given(share_tables())
def test_sums_are_exact_up_to_whole_gangs_and_deficits_stay_bounded(made: tuple[list[JobSpec], str, Shares]) -> None:
    jobs, cluster, shares = made

    turned = turn(jobs, cluster, shares, 40)

    width = np.array([spec.gpus for spec in jobs])
    capacity = np.array([int(part.split(":")[1]) for part in cluster.split(",")])
    per_job = turned.granted.sum(axis=2)  # r,o
    assert (turned.granted.sum(axis=1) <= capacity).all()
    assert np.isin(per_job / width, (0, 1)).all()
    assert (np.abs(turned.owed) <= shares.gpus.sum(axis=1, keepdims=True) + 2 * width[:, None] + 1e-9).all()
    # No job waits while there is room for its gang.
    left = capacity - turned.granted.sum(axis=1)  # r,t
    assert not ((per_job == 0) & (left.max(axis=1, keepdims=True) >= width)).any()


def test_a_job_that_was_spread_still_moves_up_to_its_fastest_type_once_it_is_gathered() -> None:
    halved = Profile(
        "made up",
        (speed("even", "v100", 2.0), speed("even", "k80", 1.5)),
        {"even": ModelFacts(spread=0.5, restart_s=0.0)},
    )
    state = Scene([job("a", 2)], "v100:8,k80:8", halved, held={"a": ((0, 1), (1, 1))}).state()
    shares, nobody = shares_of([[0.0, 2.0]]), np.zeros(1, dtype=bool)
    spread = look(state, ROUND_POLICIES["fifo"], 360.0)
    grants, owed, _ = round_shares(spread, shares, NOTHING_OWED, nobody)
    assert granted(spread, grants) == [[0, 2]]  # 2 samples/s on its v100 spot, 3 on k80

    stop(state, "a", 360.0, 0.0)
    start(state, "a", ((2, 2),), 360.0)
    gathered = look(state, ROUND_POLICIES["fifo"], 360.0)
    grants, _, _ = round_shares(gathered, shares, owed, nobody)

    assert gathered.job is spread.job  # claims of the same shares are used again
    assert granted(gathered, grants) == [[2, 0]]  # 4 samples/s on one v100 node
