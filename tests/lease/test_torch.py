"""Relaxed synchronisation gives the update of k ranks, with real PyTorch over gloo."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from waiting import PATIENCE_S

pytest.importorskip("torch", reason="PyTorch is not installed; pip install 'fairlead[torch]' runs these tests")

pytestmark = pytest.mark.slow

RANKS = Path(__file__).with_name("ranks.py")
STEPS = 24


def lease_file(folder: Path, number: int, tasks: Sequence[int]) -> str:
    lease = {
        "number": number,
        "gpus": [{"node": "n", "type": "t", "slot": slot, "tasks": count} for slot, count in enumerate(tasks)],
        "emulated": False,
        "pace": None,
        "checkpoint_dir": str(folder / "checkpoints"),
    }
    path = folder / f"lease-{number}.json"
    path.write_text(json.dumps(lease))
    return str(path)


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """Loss at every step: four ranks by PyTorch itself, then ours on other grants, each with its own checkpoints."""
    plan: list[dict[str, Any]] = []

    def run(name: str, tasks: Sequence[int], from_: int, to: int, number: int = 1, ddp: bool = False) -> None:
        folder = root / name
        folder.mkdir(exist_ok=True)
        lease = None if ddp or not tasks else lease_file(folder, number, tasks)
        ranks = 4 if ddp else len(tasks) or 2
        out = str(folder / f"{number}.json")
        plan.append(
            {
                "ranks": ranks,
                "from": from_,
                "to": to,
                "lease": lease,
                "ddp": ddp,
                "out": out,
                "code": 85 if lease and to < STEPS else 0,
            }
        )

    root = tmp_path_factory.mktemp("curves")
    run("reference", (), 0, STEPS, ddp=True)
    run("one", (4,), 0, STEPS)
    run("two", (3, 1), 0, STEPS)
    run("three", (2, 1, 1), 0, STEPS)
    run("plain", (), 0, STEPS)  # two ranks without any lease
    run("changing", (1, 2, 1), 0, 9, number=1)
    run("changing", (4,), 9, 16, number=2)
    run("changing", (1, 3), 16, STEPS, number=3)
    path = root / "plan.json"
    path.write_text(json.dumps(plan))
    done = subprocess.run(
        [sys.executable, str(RANKS), str(path)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    names = [Path(entry["out"]) for entry in plan]
    losses: dict[str, list[float]] = {}
    for path in names:
        losses.setdefault(path.parent.name, []).extend(json.loads(path.read_text())["losses"])
    return losses


def test_four_ranks_learn_something(curves: dict[str, list[float]]) -> None:
    reference = curves["reference"]
    assert sum(reference[-4:]) < 0.3 * sum(reference[:4])


@pytest.mark.parametrize("name", ["one", "two", "three", "plain"])
def test_any_number_of_ranks_learns_as_four_do(curves: dict[str, list[float]], name: str) -> None:
    assert curves[name] == pytest.approx(curves["reference"], rel=2e-5)


def test_a_job_that_changes_its_ranks_on_the_way_learns_as_if_it_had_not(curves: dict[str, list[float]]) -> None:
    assert len(curves["changing"]) == STEPS
    assert curves["changing"] == pytest.approx(curves["reference"], rel=2e-5)


class SentError(Exception):
    """Replaces sending; records the device of the tensor."""


def test_ranks_send_only_tensors_on_the_device_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL sends nothing else. The meta device takes the place of a GPU."""
    import torch
    import torch.distributed as dist

    from fairlead.lease.torch import ScaleFixed

    def all_reduce(tensor: torch.Tensor, **more: object) -> None:
        raise SentError(tensor.device.type)

    answers = {"is_initialized": True, "get_rank": 0, "get_world_size": 2, "broadcast": None}
    for name, answer in answers.items():
        monkeypatch.setattr(dist, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    sync = ScaleFixed(torch.nn.Linear(2, 2, device="meta"), 2)

    with pytest.raises(SentError, match="meta"):
        sync.mean(1.0)
    with pytest.raises(SentError, match="meta"):
        sync.should_stop()


def test_tasks_are_split_by_the_lease_or_else_evenly() -> None:
    from fairlead.lease.torch import counts_by_rank

    assert counts_by_rank((2, 1, 1), 3, None) == [2, 1, 1]
    assert counts_by_rank((2, 1, 1), 1, None) == [4]
    assert counts_by_rank((), 3, 4) == [2, 1, 1]
    with pytest.raises(ValueError, match="pass k"):
        counts_by_rank((), 2, None)
