"""The error of learnt rates in worlds with hidden speeds, starting from the iteration-time formula."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fairlead.model.allocation import Spot
from fairlead.model.cluster import parse_short_form
from fairlead.numerics.random import stream
from fairlead.rates.estimator import Estimator, TableEstimator
from fairlead.rates.iteration import Links, Parts
from fairlead.rates.profile import Profile
from fairlead.rates.three_layer import Sensing, ThreeLayer
from fairlead.traces.profiles import format_profile, parse_profile

CLUSTER = parse_short_form("v100:64x8,k80:64x8")
NODE_TYPE = CLUSTER.node_type.tolist()
MODELS, JOBS, ROUNDS, NOISE = 6, 60, 12, 0.02
SERVERS = (0.75, 1.05)


def profiled(seed: int) -> Profile:
    """Parts of six models on two GPUs, written to a file and read from it."""
    random = stream(seed, "parts")
    parts = {}
    for m in range(MODELS):
        for gpu, slow in (("v100", 1.0), ("k80", 3.0)):
            f = slow * float(random.uniform(0.02, 0.06))
            parts[f"m{m}", gpu] = Parts(
                batch=32.0,
                forward_s=f,
                backward_s=2 * f,
                update_s=0.005,
                params_gib=float(random.uniform(0.05, 1.0)),
                load_cached_s=f * float(random.uniform(0.0, 2.0)),
                load_disk_s=f * float(random.uniform(0.0, 6.0)),
                cached=float(random.uniform(0.7, 1.0)),
                loads_ahead=m % 2 == 0,
            )
    links = {"v100": Links(20.0, 4.0), "k80": Links(8.0, 3.0)}
    return parse_profile(format_profile(Profile("profiled", (), {}, parts, links)), "parts.txt")


@dataclass(frozen=True)
class Hidden:
    """Hidden speeds: truth = formula x slowest server x factor of a job that is spread / level of its profile."""

    seed: int
    spread: tuple[float, float] = (1.0, 1.0)
    level: tuple[float, float] = (1.0, 1.0)  # of (model, type): parts were measured on a server of this speed

    def rates(self, table: Estimator) -> dict[tuple[int, Spot], float]:
        """The rate of every job on the spots that a scheduler might choose: 2 or 8 GPUs of a node, or two neighbours."""
        random = stream(self.seed, "hidden")
        server = random.uniform(*SERVERS, len(NODE_TYPE))
        spread, level = random.uniform(*self.spread, JOBS), random.uniform(*self.level, (MODELS, 2))
        rates = {}
        for j in range(JOBS):
            for spot in spots():
                t, gpus = NODE_TYPE[spot[0][0]], sum(count for _, count in spot)
                rate = table.at(f"m{j % MODELS}", t, gpus, len(spot)) * min(server[node] for node, _ in spot)
                rates[j, spot] = float(rate * (spread[j] if len(spot) > 1 else 1.0) / level[j % MODELS, t])
        return rates


def spots() -> list[Spot]:
    nodes = range(len(NODE_TYPE))
    pairs = [(node, node + 1) for node in nodes[:-1] if NODE_TYPE[node] == NODE_TYPE[node + 1]]
    return [((node, gpus),) for node in nodes for gpus in (2, 8)] + [((a, 8), (b, 8)) for a, b in pairs]


def errors(hidden: Hidden, sensing: Sensing) -> dict[str, float]:
    """Mean error of predicted rates, by whether the job was observed there and whether it was spread.

    In every round each job runs somewhere, a third of the time on two nodes.
    """
    table = TableEstimator(profiled(hidden.seed), CLUSTER)
    truth = hidden.rates(table)
    by_nodes = [[spot for spot in spots() if len(spot) == nodes] for nodes in (1, 2)]
    random = stream(hidden.seed, "rounds")
    estimator, observed = ThreeLayer(table, CLUSTER, sensing), set()
    for _ in range(ROUNDS):
        for j in range(JOBS):
            choice = by_nodes[random.random() < 1 / 3]
            spot = choice[int(random.integers(len(choice)))]
            estimator.observe(j, f"m{j % MODELS}", spot, truth[j, spot] * float(random.normal(1.0, NOISE)))
            observed.add((j, spot))
    off: dict[str, list[float]] = {}
    for (j, spot), rate in truth.items():
        name = f"{'seen' if (j, spot) in observed else 'unseen'}, {'spread' if len(spot) > 1 else 'one node'}"
        off.setdefault(name, []).append(abs(estimator.predict(j, f"m{j % MODELS}", spot) / rate - 1.0))
    return {name: float(np.mean(values)) for name, values in off.items()}


@pytest.mark.parametrize("seed", range(4))
def test_hidden_speeds_of_servers_are_learnt(seed: int) -> None:
    error = errors(Hidden(seed), Sensing.THREE_LAYER)
    by_type = errors(Hidden(seed), Sensing.TYPES)

    for where in ("one node", "spread"):
        assert error[f"seen, {where}"] < 0.05
        assert error[f"unseen, {where}"] < 0.10
        assert by_type[f"seen, {where}"] > 1.5 * error[f"seen, {where}"]
        assert by_type[f"unseen, {where}"] > 1.5 * error[f"unseen, {where}"]


@pytest.mark.parametrize("seed", range(4))
def test_the_cost_of_being_spread_is_learnt_separately_from_the_speeds_of_servers(seed: int) -> None:
    hidden = Hidden(seed, spread=(0.6, 1.1))
    error = errors(hidden, Sensing.THREE_LAYER)

    table = TableEstimator(profiled(seed), CLUSTER)
    truth = {key: rate for key, rate in hidden.rates(table).items() if len(key[1]) == 2}
    formula = [table.at(f"m{j % MODELS}", NODE_TYPE[spot[0][0]], 16, 2) for j, spot in truth]
    assert np.mean(np.abs(np.array(formula) / np.array(list(truth.values())) - 1.0)) > 0.2
    assert error["seen, one node"] < 0.05
    assert error["unseen, one node"] < 0.05
    assert error["seen, spread"] < 0.05
    assert error["unseen, spread"] < 0.05


@pytest.mark.parametrize("seed", range(4))
def test_parts_that_were_profiled_on_one_server_are_corrected_in_the_first_rounds(seed: int) -> None:
    error = errors(Hidden(seed, level=SERVERS), Sensing.THREE_LAYER)

    assert error["seen, one node"] < 0.05
    assert error["unseen, one node"] < 0.05
