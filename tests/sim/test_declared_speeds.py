"""A tenant that declares wrong speeds gains nothing from it once its jobs have been measured."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from building import job, profile, setup
from fairlead.model.allocation import Level, Shares
from fairlead.model.errors import InputError
from fairlead.numerics.random import stream
from fairlead.policies import ROUND_POLICIES, as_round_policy, find_round_policy
from fairlead.rates.iteration import Links, Parts
from fairlead.rates.profile import Profile
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.journal import JournalReader, NoJournal
from fairlead.rounds.look import look
from fairlead.rounds.loop import Carried, run
from fairlead.rounds.state import State
from fairlead.sim.declared import declared_profile
from fairlead.sim.rounds.engine import SimEngine
from fairlead.sim.rounds.until import Until
from fairlead.sim.truth import World
from fairlead.studies.journals.folding import state_at
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.simulate import Setup, check_tenants, simulate
from fairlead.studies.runs.summary import finished_jobs

SPEEDS = profile(
    {
        "steep": {"v100": 4.0, "p100": 2.5, "k80": 1.0},
        "middle": {"v100": 3.0, "p100": 2.0, "k80": 1.0},
        "flat": {"v100": 1.5, "p100": 1.25, "k80": 1.0},
    }
)
ROUND_S = 360.0
CAUGHT = 10  # rounds after which a lie yields nothing: five for a factor of 3 on each of the two types that it concerns
CHECKED = 20  # rounds after which the speeds of tenants that stay on one type have been checked on the others
END = 32  # rounds
NOISE = 0.03  # of throughput, from whole GPUs in whole rounds
EXACT = 0.01  # of shares
SEEDS = (0, 1, 2, 3)
REWARDING = 2  # the seed of the world in which wrong speeds pay most without checks


def lying(policy: str, seed: int, factor: float, sensing: Sensing) -> Setup:
    """Three tenants of one model each, in an order drawn from the seed, with more jobs than GPUs; t0 may not be honest."""
    models = stream(seed, "models").permutation(list(SPEEDS.models)).tolist()
    jobs = [job(f"{u}-{n:02}", 1, 1e9, tenant=f"t{u}", model=models[u]) for u in range(3) for n in range(12)]
    world = World(seed=seed, declared_speeds=() if factor == 1 else (("t0", factor),))
    made = setup(jobs, "v100:8,p100:8,k80:8", policy, SPEEDS, world=world, round_s=ROUND_S)
    return replace(made, sensing=sensing)


def run_until(made: Setup, rounds: int) -> tuple[State, SimEngine, Carried]:
    state, senses = State(made.cluster, made.estimator()), made.sensing is not Sensing.TABLE
    engine = SimEngine(made.truth(), senses=senses)
    until = Until(engine, rounds * ROUND_S)
    done = run(until, state, as_round_policy(made.policy), made.settings, NoJournal(), explain=False)
    assert done.carried is not None
    return state, engine, done.carried


@cache
def worth_of_share(policy: str, seed: int, factor: float, sensing: Sensing) -> float:
    """True samples per second of the share that t0 has after the rounds in which it may be caught.

    Shares are what policies promise. Whole GPUs in whole rounds follow them with a period of many rounds.
    """
    made = lying(policy, seed, factor, sensing)
    state, _, _ = run_until(made, CAUGHT)
    view = look(state, find_round_policy(policy), ROUND_S)
    shares, _ = find_round_policy(policy).allocate(view, None)
    assert isinstance(shares, Shares)
    own = np.unique(shares.owner_of[view.tenant == state.tenants["t0"]])
    model = next(spec.model for spec in made.trace.jobs if spec.tenant == "t0")
    true = np.array([SPEEDS.samples_per_s(model, gpu, 1) for gpu in state.cluster.gpu])
    return float((shares.gpus[own] @ true).sum())


def simulate_until(made: Setup, check_share: float) -> float:
    """Samples that t0 has done after the last round."""
    state, _, _ = run_until(replace(made, settings=replace(made.settings, check_share=check_share)), END)
    own = np.flatnonzero(state.tenant[: state.jobs] == state.tenants["t0"])
    return float(state.done_at(own, END * ROUND_S).sum())


def gain(policy: str, seed: int, factor: float, sensing: Sensing) -> float:
    return worth_of_share(policy, seed, factor, sensing) / worth_of_share(policy, seed, 1.0, sensing) - 1.0


@cache
def throughput(policy: str, seed: int, factor: float) -> float:
    """True samples per second of t0 in the rounds after its speeds were checked, relative to its part of every type."""
    made = lying(policy, seed, factor, Sensing.THREE_LAYER)
    state, engine, carried = run_until(made, CHECKED)
    own = np.flatnonzero(state.tenant[: state.jobs] == state.tenants["t0"])
    before = state.done_at(own, CHECKED * ROUND_S).sum()
    until = Until(engine, END * ROUND_S)
    run(until, state, find_round_policy(policy), made.settings, NoJournal(), carried=carried, explain=False)
    model = made.trace.jobs[0].model.partition(" as declared")[0]
    part = 8 / 3 * sum(SPEEDS.samples_per_s(model, gpu, 1) for gpu in state.cluster.gpu)
    return float(state.done_at(own, END * ROUND_S).sum() - before) / ((END - CHECKED) * ROUND_S * part)


@pytest.mark.parametrize("factor", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("policy", ["oef-coop", "oef-noncoop", "gavel"])
def test_exaggerating_yields_nothing_once_speeds_are_measured(policy: str, factor: float) -> None:
    assert max(gain(policy, seed, factor, Sensing.THREE_LAYER) for seed in SEEDS) <= EXACT


# Not "tiresias-fft": it chooses a job's queue when the job arrives, before anything is measured, and keeps it.
DECIDES_AGAIN = [
    name for name, policy in ROUND_POLICIES.items() if policy.level != Level.SHARES and name != "tiresias-fft"
]


@pytest.mark.parametrize("policy", DECIDES_AGAIN)
@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_no_policy_rewards_wrong_speeds_once_they_were_checked(policy: str, factor: float) -> None:
    """Also where jobs stay on one type, so that nothing but a check contradicts what is declared of the others."""
    assert throughput(policy, REWARDING, factor) - throughput(policy, REWARDING, 1.0) <= NOISE


@pytest.mark.parametrize("policy", ["fft", "fft-ranked"])
def test_fft_does_not_reward_wrong_speeds_of_a_factor_of_three(policy: str) -> None:
    honest = throughput(policy, REWARDING, 1.0)
    assert max(throughput(policy, REWARDING, factor) - honest for factor in (1 / 3, 3.0)) <= NOISE


def test_without_checks_understating_pays_where_jobs_stay_on_one_type() -> None:
    honest, wrong = (
        simulate_until(lying("fft-ranked", REWARDING, factor, Sensing.THREE_LAYER), check_share=0.0)
        for factor in (1.0, 0.5)
    )
    assert wrong > 1.2 * honest


def test_understating_yields_nothing_once_speeds_are_measured() -> None:
    """Non-cooperative OEF resists exaggeration only; measuring closes the other door."""
    assert max(gain("oef-noncoop", seed, 0.5, Sensing.THREE_LAYER) for seed in SEEDS) <= EXACT


def test_without_measuring_lies_pay() -> None:
    assert max(gain("oef-coop", seed, 1.5, Sensing.TABLE) for seed in SEEDS) > 0.1
    assert max(gain("oef-noncoop", seed, 0.5, Sensing.TABLE) for seed in SEEDS) > 0.1


def test_a_declared_model_is_faster_on_every_type_but_its_slowest() -> None:
    jobs = [job("a", tenant="x", model="flat")]
    told = declared_profile(SPEEDS, jobs, {"x": 2.0}, ("v100", "p100", "k80"))
    (name,) = set(told.models) - set(SPEEDS.models)

    assert [told.samples_per_s(name, gpu, 1) for gpu in ("v100", "p100", "k80")] == [3.0, 2.5, 1.0]
    assert told.samples_per_step(name, 4) == SPEEDS.samples_per_step("flat", 4)


def test_a_declared_model_with_parts_is_faster_by_the_formula() -> None:
    parts = Parts(batch=32.0, forward_s=0.1, backward_s=0.2, update_s=0.01, params_gib=0.5)
    slow = replace(parts, forward_s=0.4, backward_s=0.8)
    links = {"v100": Links(20.0, 4.0), "k80": Links(8.0, 3.0)}
    true = Profile("parts", (), {}, {("m", "v100"): parts, ("m", "k80"): slow}, links)
    told = declared_profile(true, [job("a", tenant="x", model="m")], {"x": 3.0}, ("v100", "k80"))
    (name,) = set(told.models) - {"m"}

    for gpus, nodes in ((1, 1), (4, 1), (4, 2)):
        assert told.samples_per_s(name, "v100", gpus, nodes) == pytest.approx(
            3.0 * true.samples_per_s("m", "v100", gpus, nodes)
        )
        assert told.samples_per_s(name, "k80", gpus, nodes) == true.samples_per_s("m", "k80", gpus, nodes)


def test_a_run_with_measured_rates_is_replayed_exactly(tmp_path: Path) -> None:
    made = lying("gavel", 0, 2.0, Sensing.THREE_LAYER)
    short = replace(made, trace=replace(made.trace, jobs=tuple(replace(s, steps=20_000.0) for s in made.trace.jobs)))
    result = simulate(short, tmp_path / "run.jsonl")
    replayed = replay_journal(tmp_path / "run.jsonl")

    assert result.state.measured.version > 0
    assert replayed.same == replayed.decisions > 0
    assert state_at(tmp_path / "run.jsonl").measured.to_json() == result.state.measured.to_json()
    assert "as declared by t0" in str(JournalReader(tmp_path / "run.jsonl").header().profile.models)


def test_declared_speeds_of_a_tenant_without_jobs_are_refused() -> None:
    made = lying("gavel", 0, 2.0, Sensing.TABLE)
    with pytest.raises(InputError, match="no jobs"):
        check_tenants(replace(made, world=World(declared_speeds=(("nobody", 2.0),))))


def test_a_factor_far_from_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"0\.01 to 100"):
        World(declared_speeds=(("x", 1000.0),))


def test_the_finish_time_fairness_of_a_run_is_by_true_speeds() -> None:
    """A scheduler that ignores speeds decides the same, so no number of the liar may change."""
    honest, liar = (
        simulate(
            replace(made, trace=replace(made.trace, jobs=tuple(replace(j, steps=4000.0) for j in made.trace.jobs)))
        )
        for made in (lying("fifo", 0, factor, Sensing.TABLE) for factor in (1, 3))
    )
    believed, true = finished_jobs(liar.state), liar.finished_jobs()

    assert true.ratios()["ftf"].tolist() == honest.finished_jobs().ratios()["ftf"].tolist()
    assert (believed.alone_s < true.alone_s).any(), "the declared speeds are not true"
