"""Trains a small network, one rank for each granted GPU: `python train_torch.py STEPS OUT`.

Rank 0 writes the losses of all steps to OUT; every rank prints which tasks it ran.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from fairlead import lease
from fairlead.lease.torch import ScaleFixed


def main(steps: int, out: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    lease.restore()
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    sync = ScaleFixed(model)
    losses = []
    for step in range(steps):
        total = 0.0
        for task in sync.tasks:
            x, y = _batch(step, task)
            loss = torch.nn.functional.mse_loss(model(x), y)
            total += loss.item()
            sync.backward(loss)
        losses.append(sync.mean(total))
        sync.step(optimizer)
        lease.report(step + 1)
    # One write for the whole line: `print` without a buffer writes its newline apart, and the ranks share one log.
    sys.stdout.write(f"rank {dist.get_rank()} ran tasks {list(sync.tasks)} of {sync.k}\n")
    if not dist.get_rank():
        out.write_text(json.dumps(losses))
    dist.destroy_process_group()


def _batch(step: int, task: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(1000 * step + task)
    x = torch.randn(8, 5, generator=source)
    return x, 0.4 * x.sum(1, keepdim=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
