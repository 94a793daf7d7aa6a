"""The faults of a simulated history: what strikes, and how.

What the weather does to single messages is drawn and counted by the runner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import simulated_policy
from simulated_machines import SPARE

from fairlead.engines.requests import AddNode, Drain, RemoveNode, Resume, SetPolicy, SetTenant
from fairlead.model.cluster import Cluster, NodeGroup

if TYPE_CHECKING:
    from simulated_service import Simulation


def kill_at_a_write(sim: Simulation) -> None:
    sim.disk.crash_in = sim.dice.randrange(30)


def lose_power_at_a_write(sim: Simulation) -> None:
    kill_at_a_write(sim)
    sim.power_fails = True


def kill_again_and_again(sim: Simulation) -> None:
    sim.kills_to_come = sim.dice.randint(2, 4)
    kill_at_a_write(sim)


def kill_scheduler(sim: Simulation) -> None:
    sim.disk.kill(sim.scheduler)


def kill_api(sim: Simulation) -> None:
    sim.disk.kill(sim.api_life)


def lose_power(sim: Simulation) -> None:
    sim.power_fails = True
    sim.disk.kill(sim.scheduler)


def kill_at_a_message(sim: Simulation) -> None:
    sim.calls = sim.dice.randrange(12)


def for_a_while(sim: Simulation, switch: Callable[[bool], None], mean_s: float = 40.0) -> None:
    switch(True)
    sim.at(min(sim.now_s + sim.dice.expovariate(1 / mean_s), sim.storm_s), lambda: switch(False))


def set_clock(sim: Simulation, sign: int) -> None:
    sim.wall_s += sign * sim.dice.choice((1.0, 45.0, 3600.0, 86400.0 * 365))


def turn_bad(sim: Simulation) -> None:
    dice, often = sim.dice, sim.dice.choice((0.1, 0.3, 0.6))
    for name in dice.sample(("loses", "delays", "doubles", "refuses"), 2):
        setattr(sim.weather, name, often)


def turn_dim(sim: Simulation) -> None:
    sim.weather.omits = sim.dice.choice((0.0, 0.2, 0.5))
    sim.weather.lag_s = sim.dice.choice((0.0, 5.0, 20.0))


def set_policy(sim: Simulation) -> None:
    sim.ask(SetPolicy(sim.dice.choice(simulated_policy.POLICIES)))


def _any_node(sim: Simulation) -> str:
    return sim.dice.choice(list(sim.machines.nodes))


def lose_node(sim: Simulation, lose: Callable[[str], None]) -> None:
    node = _any_node(sim)
    lose(node)
    sim.at(min(sim.now_s + sim.dice.expovariate(1 / 60), sim.storm_s), lambda: sim.machines.bring_back(node))


def flap(sim: Simulation) -> None:
    node = _any_node(sim)
    for n in range(4):
        sim.at(sim.now_s + 6.0 * n, lambda: sim.machines.cut_off(node))
        sim.at(sim.now_s + 6.0 * n + 3.0, lambda: sim.machines.bring_back(node))


def drain(sim: Simulation) -> None:
    node = sim.dice.choice(sim.cluster.nodes)
    sim.ask(Drain(node))
    sim.undo.append(Resume(node))
    sim.at(sim.now_s + sim.dice.expovariate(1 / 60), lambda: sim.ask(Resume(node)))


def remove(sim: Simulation) -> None:
    n = sim.dice.randrange(len(sim.cluster.nodes))
    node = sim.dice.choice((sim.cluster.nodes[n], SPARE[0]))
    sim.ask(RemoveNode(node))
    if node != SPARE[0]:
        sim.undo.append(_joining(sim.cluster, n))
        sim.at(sim.now_s + sim.dice.expovariate(1 / 60), lambda: sim.ask(_joining(sim.cluster, n)))


def vanish(sim: Simulation) -> None:
    running = [run for run in sim.machines.runs.values() if run.runs]
    if running:
        sim.machines.vanish(sim.dice.choice(running))


def fail_policy(sim: Simulation, how: str) -> None:
    """It fails from the next decision on, for a while if it kills the scheduler, which then tries again."""
    sim.ask(SetPolicy(simulated_policy.NAME))
    simulated_policy.FAILS[0] = how
    sim.at(min(sim.now_s + sim.dice.expovariate(1 / 20), sim.storm_s), let_decide)


def let_decide() -> None:
    simulated_policy.FAILS[0] = None


def _joining(cluster: Cluster, n: int) -> AddNode:
    type_ = cluster.types[int(cluster.node_type[n])]
    return AddNode(cluster.nodes[n], NodeGroup(1, type_, int(cluster.node_gpus[n])))


FAULTS: dict[str, Callable[[Simulation], None]] = {
    "killed at a write": kill_at_a_write,
    "power fails at a write": lose_power_at_a_write,
    "killed at a message": kill_at_a_message,
    "killed again after each start": kill_again_and_again,
    "scheduler killed": kill_scheduler,
    "API killed": kill_api,
    "power fails": lose_power,
    "disk full": lambda sim: for_a_while(sim, lambda on: setattr(sim.disk, "full", on)),
    "disk slow": lambda sim: for_a_while(sim, lambda on: setattr(sim, "slow_s", 3.0 * on)),
    "sync fails": lambda sim: for_a_while(sim, lambda on: setattr(sim.disk, "sync_fails", on), 5.0),
    "clock set back": lambda sim: set_clock(sim, -1),
    "clock set forward": lambda sim: set_clock(sim, 1),
    "messages lost, late, doubled, refused": turn_bad,
    "looks late or incomplete": turn_dim,
    "machines unreachable": lambda sim: for_a_while(sim, lambda on: setattr(sim.weather, "outage", on)),
    "node silent": lambda sim: lose_node(sim, sim.machines.cut_off),
    "node off": lambda sim: lose_node(sim, sim.machines.switch_off),
    "node flaps": flap,
    "node drained": drain,
    "node removed": remove,
    "node added": lambda sim: sim.ask(AddNode(*SPARE)),
    "process vanishes": vanish,
    "policy fails": lambda sim: fail_policy(sim, simulated_policy.REFUSES),
    "policy crashes": lambda sim: fail_policy(sim, simulated_policy.CRASHES),
    "policy set": set_policy,
    "weight set": lambda sim: sim.ask(SetTenant("ann", 3.0)),
    "submit repeated": lambda sim: sim.repeat_submit(),
}
