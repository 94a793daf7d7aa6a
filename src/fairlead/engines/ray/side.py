"""The driver of Ray: a process of its own, because Ray is heavy, and may hang or end the process that it is in.

It answers one question at a time, in lines of JSON: `{"call": ..., ...}` in, `{"result": ...}` or `{"error": ...}` out. The
first line that it writes says that it is connected. It ends when its standard input is closed.

Groups are named fairlead:SERVICE:JOB/NUMBER, and their actors the same with /PART.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray._private.state import available_resources_per_node  # there is no public way to ask for it
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fairlead.engines.ray.actor import NodePart

NAMESPACE = "fairlead"
NODE_ID = "ray.io/node-id"  # a label that Ray gives to every node
REMOVED = "REMOVED"
_ANSWER_S = 5.0  # for an actor


def main(address: str) -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever Ray prints
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        print(json.dumps({"error": _sentence(error)}), file=answers, flush=True)
        return 1
    print(json.dumps({"result": "connected"}), file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = {"result": _CALLS[question.pop("call")](**question)}
        except Exception as error:  # of whatever kind: Ray's exceptions have no common class
            answer = {"error": _sentence(error)}
        print(json.dumps(answer), file=answers, flush=True)
    threading.Timer(5.0, os._exit, (0,)).start()  # should Ray not want to leave
    ray.shutdown()
    os._exit(0)


def look(prefix: str) -> dict[str, Any]:
    """Nodes by id, and the groups and actors whose names begin with the prefix."""
    actors = [name for name in ray.util.list_named_actors() if name.startswith(prefix)]
    groups = [group for group in placement_group_table().values() if group["name"].startswith(prefix)]
    free = available_resources_per_node()
    nodes = {
        node["NodeID"]: {
            "name": node["NodeName"],
            "address": node["NodeManagerAddress"],
            "labels": node["Labels"],
            "resources": node["Resources"],
            "free_gpus": free.get(node["NodeID"], {}).get("GPU", 0.0),
        }
        for node in ray.nodes()
        if node["Alive"]
    }
    return {
        "nodes": nodes,
        "actors": actors,
        "groups": [_group(group) for group in groups if group["state"] != REMOVED],
    }


def launch(name: str, directory: str, bundles: list[dict[str, float]], nodes: list[str], parts: int) -> None:
    """Reserve the bundles on the nodes with these ids, and let an actor in each of the first ones begin its part."""
    address = next(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == nodes[0])
    group = placement_group(
        bundles,
        name=name,
        lifetime="detached",
        bundle_label_selector=[{NODE_ID: node} for node in nodes],
    )
    for part in range(parts):
        actor = ray.remote(NodePart).options(
            name=f"{name}/{part}",
            lifetime="detached",
            num_cpus=0,
            num_gpus=bundles[part]["GPU"],
            max_restarts=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, part),
        )
        actor.remote(directory, part, address, group)


def ask_to_stop(actors: list[str]) -> bool:
    """Whether all of them have passed the request on."""
    reached = [_tell(name, "ask_to_stop") for name in actors]
    return all(reached)


def kill(actors: list[str]) -> None:
    """End the processes of these actors; an actor that does not answer is ended, and its processes follow it."""
    for name in actors:
        if not _tell(name, "kill"):
            _end(name)


def remove(name: str) -> None:
    """Remove a group, with its actors, which would otherwise wait for a group that is not placed yet."""
    for actor in ray.util.list_named_actors():
        if actor.startswith(f"{name}/"):
            _end(actor)
    for id_, group in placement_group_table().items():
        if group["name"] == name and group["state"] != REMOVED:
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(id_))))


def _tell(name: str, method: str) -> bool:
    try:
        actor = ray.get_actor(name)
        ray.get(getattr(actor, method).remote(), timeout=_ANSWER_S)
    except (ValueError, ray.exceptions.RayError):
        return False
    return True


def _end(name: str) -> None:
    with suppress(ValueError):  # there is none any more
        ray.kill(ray.get_actor(name))


def _group(group: dict[str, Any]) -> dict[str, Any]:
    on = [
        (group["bundles_to_node_id"][bundle], resources.get("GPU", 0.0))
        for bundle, resources in group["bundles"].items()
    ]
    return {"name": group["name"], "state": group["state"], "on": on}


def _sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


_CALLS: dict[str, Callable[..., Any]] = {
    "look": look,
    "launch": launch,
    "ask_to_stop": ask_to_stop,
    "kill": kill,
    "remove": remove,
}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
