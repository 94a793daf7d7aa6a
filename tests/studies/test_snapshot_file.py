"""The snapshot file: it has everything of the state, and without names the same future."""

from __future__ import annotations

import io
import json
import zipfile
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import pytest

from building import job, setup
from fairlead.model.errors import InputError
from fairlead.model.events import TenantSet
from fairlead.model.quotas import Quota
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.journal import Header
from fairlead.rounds.pausing import Pause
from fairlead.rounds.snapshot import dump
from fairlead.rounds.state import State
from fairlead.sim.truth import World
from fairlead.studies.runs.origin import journal_origin
from fairlead.studies.runs.simulate import simulate
from fairlead.studies.what_if.forward import forward
from fairlead.studies.what_if.snapshot_file import snapshot_line

SECRETS = ("thesis-of-ann", "vision-lab", "speech-lab", "even", "fast", "secret-source", "rack-nine")


def stored(tmp_path: Path) -> tuple[Header, State]:
    """Jobs that have run, run and wait, with learnt speeds, a quota, a weight and a start that was refused."""
    jobs = [
        job(
            f"thesis-of-ann-{i}", 1 + i % 2, 3000.0 + 700 * i, at=60.0 * i, model=("even", "fast")[i % 2], tenant=tenant
        )
        for i, tenant in enumerate(("vision-lab", "speech-lab", "vision-lab") * 4)
    ]
    made = setup(jobs, "v100:2,k80:2", "las", round_s=60.0, world=World(server_factor=(0.6, 1.0), seed=2))
    named = replace(made.cluster, nodes=tuple(f"rack-nine-{node}" for node in made.cluster.nodes))
    sources = tuple(replace(row, source="estimate: secret-source") for row in made.profile.speeds)
    made = replace(
        made,
        cluster=named,
        sensing=Sensing.THREE_LAYER,
        profile=replace(made.profile, speeds=sources),
        tenant_weight={"vision-lab": 2.0},
    )
    path = tmp_path / "run.jsonl"
    simulate(made, path)
    origin = journal_origin(path, 2000.0)
    state = origin.state
    state.fold(TenantSet(2000.0, "speech-lab", 1.0, (Quota("v100", 1, 1),)))
    waiting = next(j for j in state.active_jobs.tolist() if not state.held_gpus[j])
    state.pauses[waiting] = Pause(2300.0, "no room on rack-nine")
    more = {key: value for key, value in origin.header.more.items() if key not in ("world", "trace")}
    return replace(origin.header, more={**more, "engine": "rack-nine"}), state


def everything_in(text: str) -> bytes:
    """The file with what is compressed in it."""
    body = b64decode(json.loads(text)["begins"]["snapshot"])
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return b"\n".join([text.encode(), *(archive.read(name) for name in archive.namelist())])


def test_a_snapshot_is_the_state(tmp_path: Path) -> None:
    header, state = stored(tmp_path)
    path = tmp_path / "now.snapshot"
    path.write_text(snapshot_line(header, state))

    assert path.read_text().startswith('{"fairlead":"snapshot/1"')
    origin = journal_origin(path)
    assert dump(origin.state) == dump(state)
    assert origin.policy.name == "las"
    with pytest.raises(InputError, match="one time only"):
        journal_origin(path, 100.0)


def test_no_name_is_left_in_an_anonymous_snapshot(tmp_path: Path) -> None:
    header, state = stored(tmp_path)
    plain = everything_in(snapshot_line(header, state))
    anonymous = everything_in(snapshot_line(header, state, anonymise=True))

    for secret in SECRETS:
        assert secret.encode() in plain
        assert secret.encode() not in anonymous, secret
    assert b"v100" in anonymous


def test_an_anonymous_snapshot_has_the_same_future(tmp_path: Path) -> None:
    header, state = stored(tmp_path)
    futures = []
    for name, anonymise in (("plain", False), ("anonymous", True)):
        path = tmp_path / name
        path.write_text(snapshot_line(header, state, anonymise=anonymise))
        futures.append(forward(journal_origin(path)))

    times = [[(row.start_s, row.end_s) for row in future.jobs.values()] for future in futures]
    assert times[0] == times[1]
    assert len(times[0]) > 3
    assert set(futures[0].jobs).isdisjoint(futures[1].jobs)
