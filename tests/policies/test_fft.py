"""FFT by hand: the two examples of its paper through the simulator, and phi, rho and tau with their arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from building import Scene, job, profile, setup
from fairlead.model.allocation import Grants, Level, Placement, Spot
from fairlead.model.jobs import JobSpec
from fairlead.model.view import View
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.fft import FFTMemory, fair_progress, fft, fft_ranked, phi, ranked_costs, unit_of_work
from fairlead.policies.policy import Allocate, Policy
from fairlead.rates.profile import Profile
from fairlead.studies.runs.simulate import simulate

FFT, RANKED = ROUND_POLICIES["fft"], ROUND_POLICIES["fft-ranked"]

# Table 1: 8 and 1 epochs a minute on two single GPUs, two jobs of 16 epochs.
EPOCHS = profile({"m": {"v100": 8 / 60, "k80": 1 / 60}})
# Fig. 2, work in minutes: J1 and J2 take 5 min on the A10, J4 takes 14.4 min on the T4 and is 1.6 times faster on the A10.
FIG_2 = profile({"short": {"a10": 1 / 60}, "j4": {"t4": 1 / 60, "a10": 1.6 / 60}})
FIG_2_JOBS = (
    job("j1", samples=5.0, model="short"),
    job("j2", samples=5.0, model="short", at=600.0),
    job("j4", samples=14.4, model="j4"),
)


def jct_min(
    jobs: tuple[JobSpec, ...], cluster: str, policy: Policy, speeds: Profile, round_s: float, restart_s: float
) -> dict[str, float]:
    state = simulate(setup(jobs, cluster, policy, speeds, round_s=round_s, restart_s=restart_s)).state
    return {spec.id: (state.end_s[j] - spec.arrival_s) / 60 for j, spec in enumerate(state.specs)}


TABLE_1_JOBS = (job("a", samples=16.0, model="m"), job("b", samples=16.0, model="m"))


@pytest.mark.parametrize(("work", "total"), [("total", 5.75), ("remaining", 6.625)])
def test_the_printed_cost_gives_table_1_only_with_total_work(work: str, total: float) -> None:
    """Total work lets the first job finish on the fast GPU: 2 + 3.75. Remaining work swaps them after one round."""
    took = jct_min(TABLE_1_JOBS, "v100:1,k80:1", FFT.with_parameters({"work": work}), EPOCHS, 60.0, 0.0)

    assert sum(took.values()) == pytest.approx(total)


def test_ranked_costs_give_table_1() -> None:
    took = jct_min(TABLE_1_JOBS, "v100:1,k80:1", RANKED, EPOCHS, 60.0, 0.0)

    assert sum(took.values()) == pytest.approx(5.75)


def without_move_rule(decide: Allocate[FFTMemory], **parameters: Any) -> Policy:
    """The policy with its grants placed directly on nodes of one GPU, so that our rule for moves does not apply."""

    def allocate(view: View, memory: FFTMemory | None) -> tuple[Placement, FFTMemory]:
        grants, kept = decide(view, memory, **parameters)
        assert isinstance(grants, Grants)
        node_of = view.cluster.node_type.tolist().index
        spots: list[Spot] = [()] * view.jobs
        for j, i in zip(grants.jobs.tolist(), grants.types.tolist(), strict=True):
            spots[j] = ((node_of(i), 1),)
        return Placement(tuple(spots), grants.answer), kept

    return Policy("fft-as-it-says", "", "", Level.PLACEMENT, allocate, FFT.knows)


@pytest.mark.parametrize(("work", "j4"), [("total", 18.0), ("remaining", 14.4)])
def test_the_printed_cost_gives_figure_2_only_with_remaining_work(work: str, j4: float) -> None:
    """With total work J4 moves to the A10 at 5, has to leave at 10 and moves again at 15: the paper's bad schedule."""
    took = jct_min(FIG_2_JOBS, "a10:1,t4:1", without_move_rule(fft, work=work), FIG_2, 300.0, 120.0)

    assert took["j4"] == pytest.approx(j4)


def test_ranked_costs_give_the_good_schedule_of_figure_2() -> None:
    """At 5 minutes J4 gets a round of 5 on the T4, or one of 3 on the A10 that is worth 4.8."""
    took = jct_min(FIG_2_JOBS, "a10:1,t4:1", without_move_rule(fft_ranked), FIG_2, 300.0, 120.0)

    assert took["j4"] == pytest.approx(14.4)


def test_our_rule_for_moves_refuses_the_bad_schedule_of_figure_2() -> None:
    """Three minutes on the A10 are worth 4.8 on the T4, less than the round of 5 that the move takes."""
    took = jct_min(FIG_2_JOBS, "a10:1,t4:1", FFT, FIG_2, 300.0, 120.0)

    assert took["j4"] == pytest.approx(14.4)


def test_costs_of_figure_2_at_five_minutes() -> None:
    """W = 14.4 / 5 = 2.88 rounds on the T4. Stay: 1/2.88 + 2.88 = 3.227. Move: 1.6/2.88 + 2.88/1.6 + 2/5 = 2.756."""
    cost = phi(np.array([1.0]), np.array([[1.0, 1.6]]), np.array([2.88]), np.array([1]))

    assert cost + np.array([[0.0, 0.4]]) == pytest.approx(np.array([[3.227, 2.756]]), abs=5e-4)


def test_phi_by_hand() -> None:
    """Three rounds old, 4 GPUs, 10 units, 2 units per round: 3 x 2/10 + 4 x 10/2 = 20.6; nothing on a type that it cannot use."""
    cost = phi(np.array([3.0]), np.array([[2.0, 0.0]]), np.array([10.0]), np.array([4]))

    assert cost == pytest.approx(np.array([[20.6, 0.0]]))


def test_ranked_costs_by_hand() -> None:
    """Two jobs on a fast and a slow type, with 2 and 1 units per round and no work done.

    The first, one GPU wide: r = 4/2 = 2 rounds, volume 2, first of two: (2/2)^2 = 1. Fair progress 1, so tau - a = 4; three
    rounds old: u = (3 + 2)/4 = 1.25. With kappa 2 it is worth 1 + 2 x 0.25 = 1.5: -1.5 and, on the slow type, -0.75. The
    second, two wide: r = 10/2, volume 10, ((2 - 1)/2)^2 = 1/4; u = 5/20 is no reason to compensate. It is worth 2 x 1/4, and
    a move to the slow type takes a fifth of a round: -0.5 and -0.5 (1/2 - 1/5) = -0.15.
    """
    cost = ranked_costs(
        age=np.array([3.0, 0.0]),
        theta=np.array([[2.0, 1.0], [2.0, 1.0]]),
        W=np.array([4.0, 10.0]),
        done=np.zeros(2),
        d=np.array([1, 2]),
        fair=np.array([1.0, 0.5]),
        s=np.array([[0.0, 0.0], [0.0, 0.2]]),
        kappa=2.0,
    )

    assert cost == pytest.approx(np.array([[-1.5, -0.75], [-0.5, -0.15]]))


@pytest.mark.parametrize(("policy", "fast_gpu"), [(FFT, "long"), (RANKED, "short")], ids=["fft", "fft-ranked"])
def test_the_printed_cost_gives_the_fast_gpu_to_the_longer_of_two_jobs(policy: Policy, fast_gpu: str) -> None:
    """Both run twice as fast on the V100, the short one a little more than that.

    Printed: the K80 costs the long job 100 - 50 more, the short one 2 - 0.8.
    """
    speeds = profile({"long": {"v100": 2.0, "k80": 1.0}, "short": {"v100": 2.5, "k80": 1.0}})
    jobs = [job("l", samples=36000.0, model="long"), job("s", samples=720.0, model="short")]

    grants, _ = policy.allocate(Scene(jobs, "v100:1,k80:1", speeds).view(360.0), None)

    assert isinstance(grants, Grants)
    on_v100 = grants.jobs[grants.types == 0].tolist()
    assert [("long", "short")[j] for j in on_v100] == [fast_gpu]


def test_the_unit_of_work_is_a_round_on_the_slowest_type_that_the_job_can_use() -> None:
    """`fast` runs at 1 sample/s on a K80, at 2 on two GPUs: 720 in 360 s. `v` runs only on the V100, at 1."""
    view = Scene([job("a", 2, model="fast"), job("b", model="v")], "v100:2,k80:2").view(360.0)

    assert unit_of_work(view).tolist() == [720.0, 360.0]


def test_tau_by_hand() -> None:
    """Three jobs, 3 GPUs of either type, width 2: f = 3 / (3 x 2) = 1/2 of the time on each; 1/2 x 1 + 1/2 x 4 = 2.5.

    On one type only, the better: 1/2 x 4 = 2. With 12 units to do, tau - a = 4.8 rounds and 6.
    """
    theta, d, Y, active = np.array([[4.0, 1.0]]), np.array([2]), np.array([3, 3]), np.array([3.0])

    assert 12 / fair_progress(theta, d, Y, active, "share") == pytest.approx([4.8])
    assert 12 / fair_progress(theta, d, Y, active, "one-type") == pytest.approx([6.0])


def test_a_private_cluster_is_never_wider_than_the_gang() -> None:
    """Alone on 3 + 3 GPUs with width 2: f = 3/2 each, scaled to 1/2 and 1/2."""
    fair = fair_progress(np.array([[4.0, 1.0]]), np.array([2]), np.array([3, 3]), np.array([1.0]), "share")

    assert fair == pytest.approx([2.5])


def test_rho_by_hand() -> None:
    """Two jobs on one GPU, each of 7200 samples at 1 a second: W = 20 rounds, fair progress 1/2, tau - a = 40.

    Decided at rounds 0, 1 and 2. mu(0) = 0, so rho(1) = 0 for both. mu(1) = 1/40: the waiting job b has
    rho(2) = 1/40 x (1/2 - 0) = 1/80, the running job max(0, 1/40 x (1/2 - 1)) = 0.
    """
    jobs = [job("a", samples=7200.0), job("b", samples=7200.0)]
    memory = None
    for now_s in (0.0, 360.0, 720.0):
        held = {"a": ((0, 1),)} if now_s else {}
        _, memory = fft(Scene(jobs, "v100:1", held=held, now_s=now_s).view(360.0), memory)
        assert memory.fair == pytest.approx([0.5, 0.5])
        assert memory.mu == pytest.approx(np.full(2, now_s / 360.0 / 40.0))
        assert memory.rho == pytest.approx([0.0, 1 / 80 if now_s == 720.0 else 0.0])


def test_rho_counts_what_was_achieved_not_what_was_granted() -> None:
    """The job holds its GPU but spends the round restoring, so it lags like a waiting job."""
    jobs = [job("a", samples=7200.0), job("b", samples=7200.0)]
    before = Scene(jobs, "v100:1", held={"a": ((0, 1),)}, now_s=360.0).view(360.0)
    after = Scene(jobs, "v100:1", held={"a": ((0, 1),)}, now_s=720.0).view(360.0)
    assert before.done is not None

    _, memory = fft(before, None)
    _, memory = fft(replace(after, gather=lambda name: before.done if name == "done" else after.gather(name)), memory)

    assert memory.rho == pytest.approx([1 / 80, 1 / 80])


def test_memory_finds_its_jobs_again_when_others_come_and_go() -> None:
    jobs = [job(f"j{i}", samples=7200.0) for i in range(4)]
    _, memory = fft(Scene(jobs[:3], "v100:1", now_s=360.0).view(360.0), None)
    view = Scene(jobs, "v100:1", now_s=720.0).view(360.0)
    without_first = replace(view, job=view.job[1:], gather=lambda name: view.gather(name)[1:])

    _, memory = fft(without_first, memory)

    assert memory.job.tolist() == [1, 2, 3]
    assert memory.rho[:2] == pytest.approx(np.full(2, 1 / 60 * 1 / 3))
    assert memory.rho[2] == 0.0


def granted(scene: Scene) -> dict[int, int]:
    """Job -> type."""
    grants, _ = fft(scene.view(), None)
    return dict(zip(grants.jobs.tolist(), grants.types.tolist(), strict=True))


def test_a_type_without_the_memory_is_never_granted() -> None:
    """`v` has no rate on the K80, which would be free."""
    assert list(granted(Scene([job("a", model="v"), job("b", model="v")], "v100:1,k80:1")).values()) == [0]


def test_a_job_of_unknown_length_still_runs() -> None:
    unknown = replace(job("a"), steps=None)

    assert granted(Scene([unknown, job("b")], "v100:2")) == {0: 0, 1: 0}


def test_of_two_equal_choices_a_job_stays_where_it_is() -> None:
    """Both jobs are equal, and both types have the same speed for them."""
    scene = Scene([job("a"), job("b")], "v100:1,k80:1", held={"a": ((1, 1),), "b": ((0, 1),)}, now_s=360.0)

    assert granted(scene) == {0: 1, 1: 0}


def test_the_paper_s_name_has_the_paper_s_equations_and_ours_says_that_it_is_ours() -> None:
    """`fft` has total work, |A| of the moment and the whole compensation; the parameters of our costs are not its own."""
    assert {"kappa": 1.0, "work": "total", "crowd": "now", "alone": "share"}.items() <= FFT.parameters.items()
    assert not {"costs", "idle"} & FFT.parameters.keys()
    assert not {"costs", "work"} & RANKED.parameters.keys()
    assert (FFT.paper, RANKED.paper) == ("FFT (ICS 2025)", "ours, going beyond FFT (ICS 2025)")


def test_the_mean_crowd_is_over_the_life_of_a_job() -> None:
    """One job for two rounds, then two: at round 2 the mean crowd is 1 for the first job and 2 for the new one."""
    first, second = job("a", samples=7200.0), job("b", samples=7200.0, at=720.0)
    memory = None
    for now_s, jobs in ((0.0, [first]), (360.0, [first]), (720.0, [first, second])):
        _, memory = fft(Scene(jobs, "v100:1", now_s=now_s).view(360.0), memory, crowd="mean")

    assert memory is not None
    assert memory.fair == pytest.approx([1.0, 0.5])
