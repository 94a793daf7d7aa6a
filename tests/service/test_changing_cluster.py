"""A cluster that changes under a service: by the API, and by another cluster file at a restart."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from building import job
from fairlead.engines.requests import AddNode, RemoveNode
from fairlead.model.arrays import NO_JOBS
from fairlead.model.cluster import NodeGroup, parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, Event, NodeAdded, NodeDown, NodeRemoved
from fairlead.rounds.snapshot import dump
from fairlead.service.process.daemon import changes_at_start
from fairlead.service.store.cluster_file import difference, remember
from fairlead.service.store.database import open_reader, open_writer
from fairlead.service.store.directory import make, open_directory
from fairlead.service.store.log import open_log
from fairlead.service.store.request_queue import drained, read_after
from fairlead.service.store.tables import EVENTS
from serving import World, header, world

NEW = {"name": "new", "gpu": "Tesla P100", "gpus": 4}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def asked(here: World) -> list[object]:
    with closing(open_reader(here.service.directory.requests)) as reader:
        return [request for _, request in read_after(reader, 0)]


def names(here: World) -> list[str]:
    return [node["name"] for node in here.client.get("/v1/nodes", headers=here.admin).json()["nodes"]]


def test_adding_and_removing_are_asked_of_the_scheduler(here: World) -> None:
    added = here.client.post("/v1/nodes", json=NEW, headers=here.admin)
    removed = here.client.delete("/v1/nodes/k80-1", headers=here.admin)

    assert (added.status_code, removed.status_code) == (202, 202)
    assert asked(here) == [AddNode("new", NodeGroup(1, "p100", 4, 16.0)), RemoveNode("k80-1")]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({**NEW, "name": "k80-1"}, 409, "already"),
        ({**NEW, "gpu": "riva128"}, 422, "the memory of GPU type"),
        ({**NEW, "gpus": 0}, 422, "gpus"),
        ({**NEW, "name": "../x"}, 422, "name"),
    ],
)
def test_a_node_that_cannot_be_added_is_refused(here: World, body: dict[str, object], status: int, words: str) -> None:
    answer = here.client.post("/v1/nodes", json=body, headers=here.admin)

    assert answer.status_code == status
    assert words in answer.text


def test_a_node_in_use_is_removed_only_if_it_has_to_be_now(here: World) -> None:
    here.submit()
    here.take()
    decision = Decision(time.time(), Cause.ROUND, NO_JOBS, np.array([0]), (((0, 1),),), math.inf, "")
    here.log.decision(decision)
    here.log.state.fold(decision)
    here.log.touch(decision)
    here.log.commit(here.log.taken + 1)

    refused = here.client.delete("/v1/nodes/v100-1", headers=here.admin)
    assert refused.status_code == 409
    assert "j1" in refused.text
    assert "nodes drain v100-1" in refused.text
    assert here.client.delete("/v1/nodes/v100-1?now=true", headers=here.admin).status_code == 202
    assert here.client.delete("/v1/nodes/nobody", headers=here.admin).status_code == 404


def test_the_api_follows_the_cluster(here: World) -> None:
    here.happen(NodeAdded(here.log.state.now_s, "new", "p100", 4, 16.0))
    here.happen(NodeDown(here.log.state.now_s, 1))
    here.happen(NodeRemoved(here.log.state.now_s, 1))
    here.log.commit(here.log.taken)

    assert names(here) == ["v100-1", "new"]
    status = here.client.get("/v1/status", headers=here.admin).json()
    assert {type_: row["total"] for type_, row in status["gpus"].items()} == {"v100": 4, "k80": 0, "p100": 4}
    here.submit(resources={"accelerators": "P100:4"})
    assert here.client.get("/v1/shares", headers=here.admin).status_code == 200


def test_a_log_with_changes_opens_from_a_snapshot_and_without(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "state")
    make(directory, header())
    with closing(open_writer(directory.events, EVENTS)) as connection:
        log = open_log(connection)
        events: tuple[Event, ...] = (
            NodeAdded(1.0, "new", "p100", 4, 16.0),
            NodeRemoved(2.0, 1),
            Arrived(3.0, job("a", at=3.0)),
        )
        for number, event in enumerate(events):
            log.event(event)
            log.state.fold(event)
            log.commit(0)
            if number == 1:
                log.snapshot()
        assert dump(open_log(connection).state) == dump(log.state)
        connection.execute("DELETE FROM snapshots")
        assert dump(open_log(connection).state) == dump(log.state)


def test_another_cluster_file_is_a_difference_and_changes_by_command_are_kept(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "state")
    stored = header("v100:8,k80:4")
    make(directory, stored)
    file = parse_short_form("v100:8,k80:2,p100:4")

    changed = difference(directory, stored, file)

    assert changed.requests == (
        RemoveNode("k80-1"),
        AddNode("k80-1", NodeGroup(1, "k80", 2, 12.0)),
        AddNode("p100-1", NodeGroup(1, "p100", 4, 16.0)),
    )
    assert (
        changes_at_start(tmp_path / "state", file)
        == list(changed.lines)
        == [
            "k80: 4 GPUs then, 2 now",
            "p100: 0 GPUs then, 4 now",
            "nodes only now: p100-1",
            "other nodes: k80-1 (4 k80 then, 2 k80 now)",
        ]
    )
    remember(directory, file)
    assert difference(directory, stored, file).requests == ()
    assert not difference(directory, stored, parse_short_form("p100:4,v100:8,k80:2")).requests


def test_a_node_that_was_drained_and_removed_comes_back_in_service(here: World) -> None:
    here.client.post("/v1/nodes/k80-1/drain", headers=here.admin)
    here.client.delete("/v1/nodes/k80-1", headers=here.admin)
    with closing(open_reader(here.service.directory.requests)) as reader:
        assert drained(reader, 1) == ["k80-1"]
        assert drained(reader, 2) == []
