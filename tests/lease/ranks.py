"""Trains a small network on several ranks, as forked processes over gloo: `python ranks.py PLAN.json`.

The plan is a list of runs, one after another: {"ranks", "from", "to", "lease", "ddp", "code", "out"}. With `ddp` PyTorch's own
data parallelism trains, one task a rank: what relaxed synchronisation has to equal. torch is imported once, before the
ranks are forked, which takes longer than all the training.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

K = 4


def main(plan: str) -> int:
    for run in json.loads(Path(plan).read_text()):
        ranks = [_fork(run, rank) for rank in range(run["ranks"])]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
        if codes != [run["code"]] * len(ranks):
            print(f"{run}: exit codes {codes}", file=sys.stderr)
            return 1
    return 0


def _fork(run: dict[str, Any], rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(run["ranks"]), GLOO_SOCKET_IFNAME="lo")
        if run["lease"]:
            os.environ["FAIRLEAD_LEASE"] = run["lease"]
        torch.set_num_threads(1)
        if run["ranks"] > 1:
            dist.init_process_group("gloo", f"file://{run['out']}.store", rank=rank, world_size=run["ranks"])
        _train(run, rank)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _batch(step: int, task: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(1000 * step + task)
    x = torch.randn(8, 5, generator=source)
    return x, 0.4 * x.sum(1, keepdim=True)


def _train(run: dict[str, Any], rank: int) -> None:
    from fairlead import lease
    from fairlead.lease.torch import ScaleFixed

    torch.manual_seed(7 + (0 if run["ddp"] else rank))  # ScaleFixed makes all ranks start as rank 0 does
    model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    saved = None if run["ddp"] else lease.restore()
    if saved is not None:
        state = torch.load(saved / "state.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        assert state["step"] == run["from"]
    losses = []
    ddp = torch.nn.parallel.DistributedDataParallel(model) if run["ddp"] else None
    sync = None if run["ddp"] else ScaleFixed(model, K)
    for step in range(run["from"], run["to"]):
        total = 0.0
        for task in [rank] if sync is None else sync.tasks:
            x, y = _batch(step, task)
            loss = torch.nn.functional.mse_loss((ddp or model)(x), y)
            total += loss.item()
            loss.backward() if sync is None else sync.backward(loss)
        if sync is None:
            mean = torch.tensor([total])
            dist.all_reduce(mean)
            losses.append(mean.item() / K)
            optimizer.step()
            optimizer.zero_grad()
        else:
            losses.append(sync.mean(total))
            sync.step(optimizer)
            lease.report(step + 1)
    if rank == 0:
        Path(run["out"]).write_text(json.dumps({"losses": losses, "tasks": list(lease.tasks())}))
    if sync is not None and run["code"]:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": run["to"]}
        sync.stop(lambda folder: torch.save(state, folder / "state.pt"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
