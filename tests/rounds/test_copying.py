"""A copy of the state is equal to it and shares nothing that changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.policies import REGISTRY
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.copying import copied
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.snapshot import dump
from fairlead.studies.journals.folding import open_state
from fairlead.studies.policy_lab.policy_worlds import make_world
from fairlead.studies.runs.simulate import simulate


@pytest.mark.parametrize("sensing", Sensing)
def test_a_copy_is_folded_by_itself(sensing: Sensing, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    simulate(replace(make_world(REGISTRY["las"], 0), sensing=sensing), path)
    reader = JournalReader(path)
    records = list(reader.records())
    half, whole = open_state(reader.header()), open_state(reader.header())
    for record in records[: len(records) // 2]:
        half.fold(record)
    for record in records:
        whole.fold(record)
    before = dump(half)

    other = copied(half)
    assert dump(other) == before
    for record in records[len(records) // 2 :]:
        other.fold(record)

    assert dump(other) == dump(whole)
    assert dump(half) == before


def test_no_array_or_table_is_shared_between_a_state_and_its_copy() -> None:
    state = simulate(replace(make_world(REGISTRY["las"], 0), sensing=Sensing.THREE_LAYER)).state
    other = copied(state)
    parts = [(vars(state), vars(other)), (vars(state.nodes), vars(other.nodes))]
    for name, value, mine in ((name, value, two[name]) for one, two in parts for name, value in one.items()):
        if isinstance(value, (list, dict)):
            assert mine is not value, name
        if name == "fixed":
            continue  # a cache: the copy draws up its own
        for one, two in zip(arrays(value), arrays(mine), strict=True):
            assert not np.shares_memory(one, two) or one.size == 0, name
    assert other.estimator is not state.estimator
    assert other.nodes is not state.nodes
    assert vars(other).keys() == vars(state).keys()


def arrays(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in inside if isinstance(item, np.ndarray)]
