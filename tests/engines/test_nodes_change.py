"""Nodes join and leave a live engine, on a virtual clock."""

from __future__ import annotations

from engine_world import FAST, Does
from far_world import FarWorld
from virtual_world import VirtualWorld

from fairlead.engines.local.devices import Devices, Slots
from fairlead.engines.local.nvml import Detection, Device
from fairlead.engines.requests import AddNode, Drain, RemoveNode
from fairlead.model.cluster import NodeGroup, parse_short_form
from fairlead.model.events import Lost, NodeAdded, NodeRemoved, Started
from fairlead.model.lifecycle import Phase

NEW = NodeGroup(1, "v100", 2)


def test_a_node_joins_once_and_jobs_start_on_it() -> None:
    world = VirtualWorld()
    world.ask(AddNode("new", NEW))
    world.ask(AddNode("new", NEW))
    world.until(NodeAdded)
    world.settle(0.5)
    world.add("a", Does.TRAIN)

    world.start("a", world.state.cluster.nodes.index("new"))

    world.until(Started, "a")
    assert world.state.capacity.tolist() == [4, 1]


def test_a_node_that_leaves_loses_its_jobs_before_and_they_run_elsewhere() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")

    world.ask(RemoveNode("v100-1"))
    world.until(NodeRemoved)

    assert world.phase("a") is Phase.WAITING
    assert world.state.capacity.tolist() == [0, 1]
    world.start("a", 1)
    world.until(Started, "a")


def test_a_node_may_leave_and_come_back_in_one_breath() -> None:
    world = VirtualWorld()
    world.ask(Drain("v100-1"), RemoveNode("v100-1"), RemoveNode("v100-1"), AddNode("v100-1", NodeGroup(1, "k80", 3)))
    world.settle(0.5)

    assert world.state.node_up[FAST]
    assert world.state.capacity.tolist() == [0, 4]


def test_a_restart_knows_nodes_that_joined() -> None:
    world = VirtualWorld()
    world.ask(AddNode("new", NEW))
    world.settle(0.5)
    world.add("a", Does.TRAIN)
    world.start("a", 2)
    world.until(Started, "a")

    world.restart()
    world.ask(RemoveNode("new"))

    world.until(Lost, "a")


def test_slots_of_a_node_that_joins_get_devices_that_nobody_has() -> None:
    cluster = parse_short_form("v100:2x2,k80:2")
    four = Detection(tuple(Device(index, name, 16.0) for index, name in enumerate(("V100", "K80", "V100", "K80"))), "")
    emulated = Slots(Devices({("k80-1", 0): 0}, True, ""), four, lambda: cluster)
    real = Slots(Devices({("v100-1", 0): 0, ("k80-1", 0): 1}, False, ""), four, lambda: cluster)

    assert [emulated["k80-1", 1], emulated["v100-1", 0], emulated["k80-1", 1]] == [1, 2, 1]
    assert [real["v100-1", 1], real["k80-1", 1]] == [2, 3]


def test_a_node_that_the_engine_shows_joins_by_itself_and_once() -> None:
    world = FarWorld()
    world.cluster.joined["new"] = NEW
    world.until(NodeAdded)
    world.settle(30.0)

    assert sum(isinstance(event, NodeAdded) for event in world.told) == 1
    assert world.state.capacity.tolist() == [4, 1]
