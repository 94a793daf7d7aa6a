"""Hare live: a relaxed PyTorch job on GPUs of two types trains as it would on as many equal ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from live_run import SOURCE, Plan, all_ended, run_live

from building import profile
from fairlead.engines.requests import Command, Processes, Request, Submit
from fairlead.model.cluster import parse_short_form
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.rounds.state import State
from waiting import PATIENCE_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed; pip install 'fairlead[torch]'"),
]

K, STEPS = 3, 24
SCRIPT = Path(__file__).with_name("train_torch.py")
SPEEDS = {"v100": 50.0, "p100": 30.0, "k80": 20.0}
PACE = {"v100": 1.0, "p100": 0.6, "k80": 0.4}


def submit(folder: Path, id_: str, types: tuple[str, ...], *, relaxed: bool) -> Submit:
    command = Command(
        f"exec {sys.executable} {SCRIPT} {STEPS} {folder}/{id_}.json",
        env={"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1", "GLOO_SOCKET_IFNAME": "lo"},
        grace_s=PATIENCE_S,
        processes=Processes.PER_GPU,
    )
    return Submit(JobSpec(id_, "t", "m", 0.0, K, float(STEPS), types=types, relaxed=relaxed), command)


class Both:
    """The relaxed job and its twin on equal GPUs arrive together, and the run ends with them."""

    def __init__(self, folder: Path) -> None:
        self._requests: list[Request] = [
            submit(folder, "mixed", ("v100", "k80"), relaxed=True),
            submit(folder, "equal", ("p100",), relaxed=False),
        ]

    def __call__(self, state: State) -> Sequence[Request] | None:
        requests, self._requests = self._requests, []
        return None if all_ended(state) else requests


def test_a_relaxed_job_on_two_types_splits_its_tasks_unevenly_and_learns_as_on_equal_gpus(tmp_path: Path) -> None:
    cluster = parse_short_form("v100:1,k80:2,p100:3")

    done = run_live(Plan(tmp_path, "hlas-rounds", cluster, profile({"m": SPEEDS}), PACE), Both(tmp_path))

    logs = {id_: (tmp_path / "state" / "leases" / id_ / "1" / "log").read_text() for id_ in ("mixed", "equal")}
    assert set(done.state.phase[:2].tolist()) == {Phase.FINISHED}, logs
    assert sorted(logs["mixed"].splitlines()) == [
        "rank 0 ran tasks [0, 1] of 3",  # the V100 runs two tasks while a K80 runs one, and the other K80 none
        "rank 1 ran tasks [2] of 3",
        "rank 2 ran tasks [] of 3",
    ]
    assert sorted(logs["equal"].splitlines()) == [f"rank {rank} ran tasks [{rank}] of 3" for rank in range(K)]
    mixed, equal = (json.loads((tmp_path / f"{id_}.json").read_text()) for id_ in ("mixed", "equal"))
    assert len(mixed) == STEPS
    assert mixed == pytest.approx(equal, rel=2e-5)
    assert sum(mixed[-4:]) < 0.3 * sum(mixed[:4])
