"""The limit on pre-emption: what it keeps, what it lets through, and what waits because of it."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import ROUND_POLICIES, Scene, job, run_checked, setup, setups, stop
from fairlead.model.decision import Decision
from fairlead.model.errors import InputError
from fairlead.model.events import TenantSet
from fairlead.model.outcomes import Reason
from fairlead.model.pre_emption import PreemptionLimits
from fairlead.model.quotas import Quota
from fairlead.model.units import parse_gpu_time
from fairlead.policies import ROUND_POLICIES as REGISTERED
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.decide import Memory, Rules, decide
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.look import look
from fairlead.rounds.replay import replay, same, same_reasons
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.rounds.waiting import reason_sentence
from fairlead.studies.policy_lab.journal_checker import BadJournalError, check_journal
from fairlead.studies.runs.simulate import simulate

FIFO = REGISTERED["fifo"]
every_round_policy = pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))


def decided(state: State, limits: PreemptionLimits, memory: Memory | None = None) -> tuple[Decision, Memory]:
    """Decide and fold, in order of arrival."""
    rules = Rules(pre_emption=limits)
    decision, memory = decide(look(state, FIFO, 360.0), FIFO, memory or Memory(), rules=rules)
    state.fold(decision)
    return decision, memory


def crowded(restart_s: float = 30.0) -> State:
    """Two earlier jobs of two GPUs each wait for what two later ones hold; an hour ago nothing was pre-empted."""
    jobs = [job("a", 2, tenant="x"), job("b", 2, tenant="x"), job("c", 2, tenant="y"), job("d", 2, tenant="z")]
    return Scene(jobs, "v100:4", held={"c": ((0, 2),), "d": ((0, 2),)}, now_s=360.0, restart_s=restart_s).state()


def test_what_the_limit_has_no_room_for_stays_where_it_is_and_the_job_that_waits_has_the_numbers() -> None:
    state = crowded()

    decision, _ = decided(state, PreemptionLimits(gpu_s=100.0))

    assert (decision.stop.tolist(), decision.start.tolist()) == ([3], [0])  # the newest leaves first, 60 GPU-seconds
    assert Reason(int(state.reason[1])) is Reason.PREEMPTION_LIMIT
    assert (state.reason_a[1], state.reason_b[1]) == (60.0, 100.0)
    assert reason_sentence(state, 1) == (
        "PreemptionLimit: running jobs would have had to stop for it, and in an hour that had cost "
        "60 GPU-s of at most 100 GPU-s"
    )


def test_both_stop_where_the_limit_has_room_and_without_restart_costs() -> None:
    assert decided(crowded(), PreemptionLimits(gpu_s=120.0))[0].stop.tolist() == [2, 3]
    assert decided(crowded(restart_s=0.0), PreemptionLimits(gpu_s=1.0))[0].stop.tolist() == [2, 3]


def test_the_limit_of_tenants_protects_the_jobs_of_each() -> None:
    state = crowded()
    stop(state, "d", 360.0, 1.0)  # tenant z has lost 60 GPU-seconds and waits; two GPUs are free

    decision, _ = decided(state, PreemptionLimits(tenant_gpu_s=70.0))

    assert decision.stop.tolist() == [2]  # the job of tenant y, which has lost nothing yet
    assert state.pre_empted == [(360.0, 2, 60.0), (360.0, 1, 60.0)]


def test_a_start_that_costs_more_than_the_limit_happens_once_in_an_hour() -> None:
    state = crowded(restart_s=100.0)

    first, memory = decided(state, PreemptionLimits(gpu_s=50.0))
    state.pass_time(720.0)
    second, memory = decided(state, PreemptionLimits(gpu_s=50.0), memory)
    state.pass_time(3960.0)
    third, _ = decided(state, PreemptionLimits(gpu_s=50.0), memory)

    assert [len(decision.stop) for decision in (first, second, third)] == [1, 0, 1]


def test_what_the_longest_held_back_job_lacks_is_reserved_for_it() -> None:
    """Small starts would use up every hour; the wide gang that waits since before them comes first."""
    jobs = [job("s", 1), job("wide", 4), *(job(f"r{n}", 1) for n in range(5))]
    held = {f"r{n}": ((0, 1),) for n in range(4)} | {"r4": ((1, 1),)}
    state = Scene(jobs, "v100:5", held=held, now_s=360.0, restart_s=100.0).state()
    limits = PreemptionLimits(gpu_s=400.0)

    alone = decide(look(state, FIFO, 360.0), FIFO, Memory(), rules=Rules(pre_emption=limits))[0]
    waited = Memory(held_back={1: 0.0})
    reserved = decide(look(state, FIFO, 360.0), FIFO, waited, rules=Rules(pre_emption=limits))[0]

    assert alone.start.tolist() == [0]
    assert reserved.start.tolist() == [1]


def test_quotas_take_back_what_is_lent_whatever_it_costs() -> None:
    state = Scene(
        [job("a", 2, tenant="x"), job("b", 2, tenant="y", at=1.0)],
        "v100:2",
        held={"b": ((0, 2),)},
        since={"b": 1.0},
        now_s=360.0,
        restart_s=100.0,
    ).state()
    stop_elsewhere = (360.0, 1, 500.0)
    state.pre_empted = [stop_elsewhere]
    limits = PreemptionLimits(gpu_s=10.0)
    kept, _ = decide(look(state, FIFO, 360.0), FIFO, Memory(), rules=Rules(pre_emption=limits))
    state.fold(TenantSet(360.0, "x", 1.0, (Quota("v100", 2),)))

    taken, _ = decided(state, limits)

    assert not kept.stop.size
    assert taken.stop.tolist() == [1]


def test_a_snapshot_keeps_the_charges_of_the_last_hour() -> None:
    state = crowded()
    decided(state, PreemptionLimits(gpu_s=100.0))

    again = load(dump(state), state.cluster, TableEstimator(Scene([]).speeds, state.cluster, restart_s=30.0))

    assert again.pre_empted == state.pre_empted == [(360.0, 2, 60.0)]


@every_round_policy
@settings(max_examples=8)
@given(data=st.data())
def test_under_every_policy_no_hour_costs_more_every_job_finishes_and_replays_agree(
    policy: Policy, data: st.DataObject
) -> None:
    made = data.draw(setups(policy))
    limited = replace(
        made.settings,
        preemption_gpu_s=data.draw(st.sampled_from((None, 30.0, 400.0))),
        tenant_preemption_gpu_s=data.draw(st.sampled_from((None, 100.0))),
    )
    made = replace(made, settings=limited)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        result, _ = run_checked(made, path)  # the checker recounts every hour and the numbers of every reason
        reader = JournalReader(path)
        fresh = State(made.cluster, made.estimator(), made.tenant_weight)
        pairs = list(replay(reader.records(), fresh, policy, made.settings))

    assert all(same(recorded, again) and same_reasons(recorded, again) for recorded, again in pairs)
    assert fresh.pre_empted == result.state.pre_empted


def test_the_checker_rejects_a_journal_with_an_hour_that_costs_more(tmp_path: Path) -> None:
    jobs = [job(f"j{n}", 2, 4e4, at=100.0 * n) for n in range(6)]
    made = setup(jobs, "v100:4", "las", restart_s=30.0, round_s=60.0)
    simulate(made, tmp_path / "journal")
    lines = (tmp_path / "journal").read_text().splitlines(keepends=True)
    assert '"min_run_s":0.0' in lines[0]
    lines[0] = lines[0].replace('"min_run_s":0.0', '"min_run_s":0.0,"preemption_gpu_s":150.0')
    (tmp_path / "claimed").write_text("".join(lines))

    check_journal(tmp_path / "journal")
    with pytest.raises(BadJournalError, match=r"pre-emption costs .* of 150"):
        check_journal(tmp_path / "claimed")


@pytest.mark.parametrize(
    ("text", "gpu_s"), [("2gpu-h/h", 7200.0), ("30 GPU-min/h", 1800.0), ("900gpu-s", 900.0), (".5gpu-h", 1800.0)]
)
def test_gpu_time_is_read_in_three_units(text: str, gpu_s: float) -> None:
    assert math.isclose(parse_gpu_time(text, "--preemption-limit"), gpu_s)


@pytest.mark.parametrize("text", ["0gpu-h/h", "2", "gpu-h", "2gpu-d/h", "-1gpu-h/h"])
def test_gpu_time_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match=r"--preemption-limit .* such as 2gpu-h/h"):
        parse_gpu_time(text, "--preemption-limit")
