"""Reports of running jobs in the simulator: when they come, how noisy they are, and what they do not disturb."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from building import job, profile, setup
from fairlead.model.cluster import NodeGroup
from fairlead.model.errors import InputError
from fairlead.model.events import Event, Lost, Progress, Started
from fairlead.policies import find_round_policy
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.records import Record
from fairlead.sim.truth import Truth, World
from fairlead.studies.journals.folding import carried_at
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.from_state import simulate_from
from fairlead.studies.runs.simulate import Setup, simulate

SPEEDS = profile({"m": {"v100": 2.0, "k80": 1.0}})
CLUSTER = "v100:8x2,k80:4x2"
NOISY = World(seed=3, server_factor=(0.7, 1.1), sensing_noise=0.1)


class Tape:
    """Keeps all records of a run."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def event(self, event: Event) -> None:
        self.records.append(event)

    def decision(self, decision: Record) -> None:
        self.records.append(decision)


def made(world: World = NOISY, sensing: Sensing = Sensing.THREE_LAYER, policy: str = "fifo") -> Setup:
    jobs = [job(f"j{i}", 1 + i % 2, 3000.0 + 100.0 * i, at=50.0 * i, model="m") for i in range(12)]
    return replace(setup(jobs, CLUSTER, policy, SPEEDS, world=world), sensing=sensing)


def records(run: Setup) -> list[Record]:
    tape = Tape()
    simulate(run, watch=tape)
    return tape.records


def reports(run: Setup) -> list[Progress]:
    return [record for record in records(run) if isinstance(record, Progress)]


def test_a_start_shows_no_measured_speed() -> None:
    starts = [record for record in records(made()) if isinstance(record, Started)]

    assert starts
    assert not any(start.measured for start in starts)


def test_a_job_reports_after_it_has_run_for_a_whole_interval() -> None:
    events = records(made(replace(NOISY, report_s=100.0), policy="fifo-sticky"))
    began = {j: start.time_s for start in events if isinstance(start, Started) for j in start.jobs.tolist()}
    first: dict[int, float] = {}
    for report in events:
        if isinstance(report, Progress):
            for j in report.jobs.tolist():
                first.setdefault(j, report.time_s)

    assert set(first) == set(began)
    assert all(100.0 <= first[j] - began[j] < 200.0 for j in began)
    assert all(report.time_s % 100.0 == 0 for report in events if isinstance(report, Progress))


def test_without_sensing_there_are_no_reports() -> None:
    assert not reports(made(sensing=Sensing.TABLE))


def test_the_noise_of_reports_has_the_stated_size_and_no_bias() -> None:
    def speeds(world: World) -> list[float]:
        return [rate for report in reports(made(world)) for rate in report.rate.tolist()]

    exact = speeds(replace(NOISY, sensing_noise=0.0))
    ratio = np.array(speeds(NOISY)) / np.array(exact)

    assert len(exact) > 150
    assert ratio.std() == pytest.approx(0.1, rel=0.2)
    assert ratio.mean() == pytest.approx(1.0, abs=0.03)
    assert speeds(NOISY) == speeds(NOISY)


def test_noise_does_not_depend_on_the_policy() -> None:
    """Both policies start the first job in the first round, so its first report is at the same time."""
    fifo, las = (reports(made(policy=policy))[0] for policy in ("fifo", "las"))

    assert fifo.time_s == las.time_s
    assert fifo.rate[0] == las.rate[0]


def test_reports_change_no_end_of_a_job() -> None:
    def ends(run: Setup) -> list[float]:
        return [float(end_s) for end_s in simulate(run).state.end_s[:12]]

    assert ends(made()) == pytest.approx(ends(made(sensing=Sensing.TABLE)), rel=1e-12)


def test_reports_save_nothing_that_a_failure_would_lose() -> None:
    world = replace(NOISY, mtbf_s=5000.0, repair_s=100.0, checkpoint_s=500.0)

    def kept(run: Setup) -> list[tuple[float, list[float]]]:
        lost = [record for record in records(run) if isinstance(record, Lost)]
        assert lost
        return [(loss.time_s, loss.samples.tolist()) for loss in lost]

    for one, other in zip(kept(made(world)), kept(made(world, Sensing.TABLE)), strict=True):
        assert one[0] == other[0]
        assert one[1] == pytest.approx(other[1])


def test_a_noisy_run_is_replayed_and_continued_exactly(tmp_path: Path) -> None:
    """The continued run knows the true speeds, which are not in the journal's noisy reports."""
    run, whole, path = made(policy="hops"), Tape(), tmp_path / "run.jsonl"
    result = simulate(run, path, watch=whole)
    replayed = replay_journal(path)
    assert replayed.decisions == replayed.same > 0

    for time_s in (400.0, 1440.0, 1500.0):
        state, policy, _, carried = carried_at(path, find_round_policy("hops"), time_s)
        ends = simulate_from(
            state,
            policy,
            run.settings,
            run.world,
            future=run.trace.jobs[state.jobs :],
            rates=run.truth().rates,
            carried=carried,
        ).state.end_s[:12]
        assert ends.tolist() == result.state.end_s[:12].tolist()


# ---- jobs that suffer on some servers more ---------------------------------------------------------------------------


def truth(world: World) -> Truth:
    return made(world).truth()


def test_each_job_has_a_speed_of_its_own_on_each_server() -> None:
    plain, own = truth(World(seed=1)), truth(World(seed=1, job_server_factor=(0.5, 1.0)))
    ratio = np.array([[own.rate(j, ((n, 1),)) / plain.rate(j, ((n, 1),)) for n in range(6)] for j in range(12)])

    assert len(np.unique(ratio)) == ratio.size
    assert ((ratio >= 0.5) & (ratio <= 1.0)).all()
    assert ratio.mean() == pytest.approx(0.75, abs=0.1)


def test_the_effect_multiplies_the_speed_of_the_server() -> None:
    server = truth(World(seed=1, server_factor=(0.5, 0.5), job_server_factor=(0.5, 1.0)))
    own = truth(World(seed=1, job_server_factor=(0.5, 1.0)))

    assert server.rate(3, ((2, 1),)) == pytest.approx(0.5 * own.rate(3, ((2, 1),)))


def test_a_server_that_joins_changes_no_other_effect() -> None:
    world = truth(World(seed=1, job_server_factor=(0.5, 1.0)))
    before = [world.rate(j, ((n, 1),)) for j in range(12) for n in range(6)]

    world.add_node("late", NodeGroup(1, "v100", 2))

    assert [world.rate(j, ((n, 1),)) for j in range(12) for n in range(6)] == before
    assert 0.5 * 2.0 <= world.rate(0, ((6, 1),)) <= 2.0


def test_single_tasks_refuse_the_effect() -> None:
    with pytest.raises(InputError, match="leave out --job-server-factors"):
        simulate(made(World(job_server_factor=(0.5, 1.0)), Sensing.TABLE, "hlas"))


@pytest.mark.parametrize(
    "wrong",
    [{"job_server_factor": (0.0, 1.0)}, {"sensing_noise": -0.1}, {"sensing_noise": 2.0}, {"report_s": 0.5}],
)
def test_impossible_worlds_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="wanted"):
        World(**wrong)  # type: ignore[arg-type]
