from __future__ import annotations

import numpy as np
import pytest

from building import Scene, job, profile, setup
from fairlead.model.arrays import FloatArray
from fairlead.model.events import NodeUsable
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.oef import cooperative, non_cooperative
from fairlead.policies.tenants import virtual_users
from fairlead.rounds.journal import NoJournal
from fairlead.rounds.look import look
from fairlead.rounds.loop import run
from fairlead.rounds.state import State
from fairlead.sim.rounds.engine import SimEngine

TYPES = ("k80", "p100", "v100")


class EnoughError(Exception):
    pass


def speedups(seed: int) -> FloatArray:
    random = np.random.default_rng(seed)
    tenants = int(random.integers(4, 21))
    steps = np.column_stack((np.ones(tenants), random.uniform(1.1, 2.5, (tenants, 2))))
    return np.cumprod(steps, axis=1, dtype=np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("policy", "rule"), [("oef-coop", cooperative), ("oef-noncoop", non_cooperative)])
def test_after_100_rounds_every_tenant_has_its_share_within_one_per_cent(seed: int, policy: str, rule: object) -> None:
    W = speedups(seed)
    tenants = len(W)
    speeds = profile({f"m{u}": dict(zip(TYPES, row, strict=True)) for u, row in enumerate(W.tolist())})
    jobs = [job(f"{u}-{i}", samples=1e9, model=f"m{u}", tenant=str(u)) for u in range(tenants) for i in range(12)]
    made = setup(jobs, "k80:8,p100:8,v100:8", policy, speeds=speeds)
    held = np.zeros(W.shape)  # u,t  GPU-rounds
    rounds = 0

    def count(state: State) -> None:
        nonlocal rounds
        for spec, spot in zip(state.specs, state.spots, strict=True):
            for node, gpus in spot:
                held[int(spec.tenant), state.cluster.node_type[node]] += gpus
        rounds += 1
        if rounds == 100:
            raise EnoughError

    state = State(made.cluster, made.estimator())
    with pytest.raises(EnoughError):
        run(SimEngine(made.truth()), state, ROUND_POLICIES[policy], made.settings, NoJournal(), count)
    promised = rule(W, np.full(3, 8.0), np.ones(tenants)).shares  # type: ignore[operator]
    reached = (W * held / 100).sum(axis=1) / (W * promised).sum(axis=1)
    assert reached.min() > 0.99


def test_a_tenant_with_two_kinds_of_jobs_is_two_virtual_users_with_half_its_weight_each() -> None:
    scene = Scene(
        [
            job("a", model="fast", tenant="x"),
            job("b", model="fast", tenant="x"),
            job("c", model="even", tenant="x"),
            job("d", model="even", tenant="y"),
        ],
        "v100:4,k80:4",
    )
    users = virtual_users(scene.view())
    assert users.weight.tolist() == [0.5, 0.5, 1.0]
    assert users.of_job.tolist() == [0, 0, 1, 2]


def test_jobs_that_allow_other_types_are_of_another_kind() -> None:
    scene = Scene([job("a", tenant="x"), job("b", tenant="x", types=("k80",))], "v100:4,k80:4")
    users = virtual_users(scene.view())
    assert (users.speedup > 0).tolist() == [[True, True], [False, True]]


def test_a_weight_can_be_split_by_the_gpus_that_jobs_ask_for() -> None:
    scene = Scene([job("a", 3, model="fast", tenant="x"), job("b", 1, model="even", tenant="x")], "v100:4,k80:4")
    assert virtual_users(scene.view(), "demand").weight.tolist() == [0.75, 0.25]


def test_shares_are_solved_again_only_when_tenants_rates_or_capacity_change() -> None:
    scene = Scene([job("a", model="fast", tenant="x"), job("b", model="even", tenant="y")], "v100:4,k80:4")
    policy = ROUND_POLICIES["oef-coop"]
    state = scene.state()
    _, first = policy.allocate(look(state, policy, 360.0), None)
    _, again = policy.allocate(look(state, policy, 360.0), first)
    assert again is first
    state.fold(NodeUsable(0.0, 0, 3))
    _, changed = policy.allocate(look(state, policy, 360.0), first)
    assert changed is not first
