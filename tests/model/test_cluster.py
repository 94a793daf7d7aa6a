"""Nodes, types and the short form."""

from __future__ import annotations

import pytest

from fairlead.model.cluster import Cluster, NodeGroup, build_cluster, parse_short_form
from fairlead.model.errors import InputError


def sizes(cluster: Cluster) -> dict[str, int]:
    return dict(zip(cluster.nodes, cluster.node_gpus.tolist(), strict=True))


def test_the_short_form_makes_nodes_of_four_and_a_smaller_last_one() -> None:
    assert sizes(parse_short_form("v100:10")) == {"v100-1": 4, "v100-2": 4, "v100-3": 2}


def test_the_short_form_takes_a_node_size() -> None:
    assert sizes(parse_short_form("V100:8x8, p100:2x1")) == {"v100-1": 8, "p100-1": 1, "p100-2": 1}


def test_fewer_gpus_than_a_node_holds_make_one_small_node() -> None:
    assert sizes(parse_short_form("v100:3")) == {"v100-1": 3}


@pytest.mark.parametrize(
    "text", ["", "v100", "v100:", "v100:x4", "v100:0", "v100:-4", "v100:4x0", "v100:2.5", "v100:4,", "v100:nan", ":4"]
)
def test_other_short_forms_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_short_form(text)


def test_a_huge_cluster_is_treated_as_a_typing_error() -> None:
    with pytest.raises(InputError, match="wanted a whole number from 1"):
        parse_short_form("v100:99999999999")


def test_types_are_in_the_order_of_their_first_node_and_groups_of_one_type_add_up() -> None:
    cluster = build_cluster([NodeGroup(1, "p100", 2), NodeGroup(2, "v100", 4), NodeGroup(1, "p100", 8)])

    assert cluster.types == ("p100", "v100")
    assert cluster.capacity.tolist() == [10, 8]
    assert cluster.largest_node.tolist() == [8, 4]
    assert cluster.total_gpus == 18
    assert sizes(cluster) == {"p100-1": 2, "v100-1": 4, "v100-2": 4, "p100-2": 8}


@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (4, 1), (5, 2), (6, 3), (7, 4)])
def test_the_fewest_nodes_count_nodes_of_unequal_size(gpus: int, nodes: int) -> None:
    cluster = build_cluster(
        [NodeGroup(1, "v100", 1), NodeGroup(1, "v100", 4), NodeGroup(1, "v100", 1), NodeGroup(2, "k80", 8)]
    )

    assert cluster.fewest_nodes(0, gpus) == nodes


def test_one_gpu_with_two_memory_sizes_is_two_types_with_one_speed() -> None:
    cluster = build_cluster([NodeGroup(1, "v100", 4), NodeGroup(1, "v100", 4, 32.0)])

    assert cluster.types == ("v100", "v100-32gib")
    assert cluster.gpu == ("v100", "v100")
    assert cluster.memory_gib.tolist() == [16.0, 32.0]


def test_groups_with_one_name_are_numbered_consecutively() -> None:
    cluster = build_cluster([NodeGroup(2, "v100", 4, name="rack"), NodeGroup(1, "k80", 4, name="rack")])

    assert cluster.nodes == ("rack-1", "rack-2", "rack-3")


@pytest.mark.parametrize("memory_gib", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_memory_must_be_a_number_above_zero(memory_gib: float) -> None:
    with pytest.raises(InputError, match="memory_gib"):
        NodeGroup(1, "v100", 4, memory_gib)


def test_an_unknown_gpu_needs_its_memory() -> None:
    with pytest.raises(InputError, match="add memory_gib"):
        NodeGroup(1, "b300", 8)
    assert NodeGroup(1, "b300", 8, 288.0).memory == 288.0


@pytest.mark.parametrize(("count", "gpus"), [(0, 4), (-1, 4), (1, 0), (1, 5000), (10**9, 1)])
def test_counts_must_be_in_range(count: int, gpus: int) -> None:
    with pytest.raises(InputError, match="wanted a whole number"):
        NodeGroup(count, "v100", gpus)


def test_a_cluster_has_nodes() -> None:
    with pytest.raises(InputError, match="no nodes"):
        build_cluster([])


def test_a_cluster_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        parse_short_form("v100:4").node_gpus[0] = 8
