"""The rate of a spot."""

from __future__ import annotations

import numpy as np
import pytest

from fairlead.model.cluster import NodeGroup, build_cluster
from fairlead.rates.relaxed import mixed_rate
from fairlead.rates.spot import spot_rate

TYPE_OF = (0, 0, 1)  # two nodes of a fast type, one of a slow type


def gang(type_: int, gpus: int, nodes: int) -> float:
    return (10.0, 4.0)[type_] * gpus * (1.0 if nodes == 1 else 0.5)


def test_one_node_is_the_gang_at_the_speed_of_the_node() -> None:
    assert spot_rate(gang, ((1, 2),), TYPE_OF) == 20.0
    assert spot_rate(gang, ((1, 2),), TYPE_OF, [1.0, 0.75, 1.0]) == 15.0


def test_the_slowest_of_several_nodes_sets_the_pace() -> None:
    assert spot_rate(gang, ((0, 1), (1, 1)), TYPE_OF, [1.0, 0.75, 1.0]) == 10.0 * 0.75


def test_a_learnt_cost_of_being_spread_counts_only_on_several_nodes() -> None:
    spread = np.array([0.5, 0.25])
    assert spot_rate(gang, ((0, 2),), TYPE_OF, None, spread) == 20.0
    assert spot_rate(gang, ((0, 1), (1, 1)), TYPE_OF, None, spread) == 5.0
    assert spot_rate(gang, ((0, 1), (2, 1)), TYPE_OF, None, spread) == mixed_rate([(10.0, 1), (4.0, 1)]) * 0.25


def test_several_types_split_the_tasks_by_speed() -> None:
    spot = ((0, 1), (1, 1), (2, 1))
    assert spot_rate(gang, spot, TYPE_OF) == mixed_rate([(15.0, 1), (15.0, 1), (6.0, 1)])
    assert spot_rate(gang, spot, TYPE_OF, [1.0, 0.2, 1.0]) == mixed_rate([(15.0, 1), (3.0, 1), (6.0, 1)])


def test_a_spot_without_nodes_has_no_speed() -> None:
    assert spot_rate(gang, (), TYPE_OF) == 0.0


@pytest.mark.parametrize(
    ("gpus", "spot"), [({0: 3}, ((1, 3),)), ({0: 6}, ((0, 2), (1, 4))), ({0: 5, 1: 1}, ((0, 1), (1, 4), (2, 1)))]
)
def test_the_compact_spot_has_the_fewest_nodes(gpus: dict[int, int], spot: tuple[tuple[int, int], ...]) -> None:
    cluster = build_cluster([NodeGroup(1, "v100", 2), NodeGroup(1, "v100", 4), NodeGroup(1, "k80", 4)])

    assert cluster.compact_spot(gpus) == spot
    assert cluster.gpus_by_type(spot) == gpus
    assert len(spot) == sum(cluster.fewest_nodes(t, count) for t, count in gpus.items())
