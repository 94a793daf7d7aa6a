"""A state that was stored and loaded is the same, at once and after all later events."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import THREE, job, setups
from fairlead.model.cluster import parse_short_form
from fairlead.model.errors import InputError
from fairlead.model.events import Arrived, Cancelled, Held, Released, TenantSet
from fairlead.model.quotas import Quota
from fairlead.policies import ROUND_POLICIES
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.journal import JournalReader
from fairlead.rounds.look import look
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.studies.journals.folding import open_state
from fairlead.studies.runs.simulate import simulate

CLUSTER = parse_short_form("v100:4,k80:2")


def fresh() -> State:
    return State(CLUSTER, TableEstimator(THREE, CLUSTER))


@given(st.data())
def test_folding_the_tail_after_a_load_equals_folding_all(data: st.DataObject) -> None:
    sensing = data.draw(st.sampled_from(Sensing))
    made = replace(data.draw(setups(data.draw(st.sampled_from(("las", "gavel", "oef-coop"))))), sensing=sensing)
    with tempfile.TemporaryDirectory() as folder:
        simulate(made, Path(folder) / "journal")
        reader = JournalReader(Path(folder) / "journal")
        header, records = reader.header(), list(reader.records())
    cut = data.draw(st.integers(0, len(records)))

    whole, head = open_state(header), open_state(header)
    for record in records[:cut]:
        head.fold(record)
    tail = load(dump(head), header.cluster, open_state(header).estimator)
    assert dump(tail) == dump(head)
    for record in records:
        whole.fold(record)
    for record in records[cut:]:
        tail.fold(record)

    assert dump(tail) == dump(whole)


def test_weights_quotas_and_holds_survive() -> None:
    state = fresh()
    state.fold(TenantSet(1.0, "first", 3.0, (Quota("v100", 2, 1, 0),)))
    for number in range(4):
        state.fold(Arrived(2.0, job(f"j{number}", at=2.0, tenant="other")))
    state.fold(Held(3.0, np.array([1, 2]), np.zeros(2)))
    state.fold(Released(4.0, np.array([2])))
    state.fold(Cancelled(5.0, np.array([1, 3])))

    again = load(dump(state), CLUSTER, TableEstimator(THREE, CLUSTER))

    assert dump(again) == dump(state)
    assert again.tenants == {"first": 0, "other": 1}
    assert again.active_jobs.tolist() == [0, 2]
    assert again.quotas is not None
    assert again.quotas.kept[0].tolist() == [2.0, 0.0]
    view, same = look(state, ROUND_POLICIES["fifo"], 60.0), look(again, ROUND_POLICIES["fifo"], 60.0)
    for name in ("tenant", "kind", "alike", "model", "width_set", "rate", "wait_s"):
        assert getattr(view, name).tolist() == getattr(same, name).tolist()


@pytest.mark.parametrize("body", [b"", b"PK\x03\x04 rubbish", b"{}"])
def test_bytes_that_are_not_a_snapshot_are_refused(body: bytes) -> None:
    with pytest.raises(InputError, match="not a snapshot"):
        load(body, CLUSTER, TableEstimator(THREE, CLUSTER))


def test_a_truncated_snapshot_is_refused() -> None:
    with pytest.raises(InputError):
        load(dump(fresh())[:-40], CLUSTER, TableEstimator(THREE, CLUSTER))


def test_a_snapshot_with_any_byte_changed_is_read_or_refused() -> None:
    state = fresh()
    for number in range(20):
        state.fold(Arrived(float(number), job(f"j{number}", at=float(number))))
    body = dump(state)
    refused = 0
    for place in range(0, len(body), 7):
        changed = bytearray(body)
        changed[place] ^= 0xFF
        try:
            load(bytes(changed), CLUSTER, fresh().estimator)
        except InputError:
            refused += 1
    assert refused > 0


def test_a_snapshot_of_another_cluster_is_refused() -> None:
    other = parse_short_form("v100:8")
    with pytest.raises(InputError, match="another cluster"):
        load(dump(fresh()), other, TableEstimator(THREE, other))


def test_a_snapshot_of_the_first_kind_had_every_gpu_usable() -> None:
    """It stored capacities, which follow from the nodes, and had no record of GPUs that others hold."""
    old = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(dump(fresh()))) as new, zipfile.ZipFile(old, "w") as archive:
        for name in new.namelist():
            body = new.read(name)
            if name == "facts.json":
                facts = json.loads(body)
                facts["fairlead"] = "snapshot/1"
                facts["numbers"]["_up_gpus"] = 6
                body = json.dumps(facts).encode()
            if name != "node_usable.npy":
                archive.writestr(name, body)

    again = load(old.getvalue(), CLUSTER, fresh().estimator)

    assert again.nodes.usable.tolist() == [4, 2]
    assert again.capacity.tolist() == [4, 2]
