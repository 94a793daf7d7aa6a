"""Trains a small network on all ranks of a gang, and stops when it is asked to: `python train_gang.py STEPS OVER OUT`.

It trains until it has done its steps and the file OVER exists, and then writes the loss of its last step to OUT.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from fairlead import lease

RANKS = 2


def main(steps: int, over: Path, out: Path) -> None:
    torch.set_num_threads(1)
    saved = lease.restore()
    dist.init_process_group("gloo")
    training = Training()
    if saved is not None:
        training.load(torch.load(saved / "state.pt"))
    while training.step < steps:
        stopping = torch.tensor([float(lease.should_stop()), float(training.step < steps // 2 or over.exists())])
        dist.all_reduce(stopping)  # the ranks agree on what they do next
        if stopping[0] > 0:
            lease.stop(training.save if not dist.get_rank() else None)
        if stopping[1] < RANKS:  # the file is not there yet
            time.sleep(0.05)
            continue
        loss = training.train([dist.get_rank()], lambda gradient: dist.all_reduce(gradient))
        lease.report(training.step)
        if training.step % 10 == 0:
            lease.checkpoint(training.save)
    if not dist.get_rank():
        out.write_text(f"{training.step} {loss!r}")
    dist.destroy_process_group()


class Training:
    def __init__(self) -> None:
        torch.manual_seed(7)
        self.model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.05)
        self.step = 0

    def train(self, ranks: list[int], add_others: object) -> float:
        """One step with the batches of these ranks; the loss on the first rank's batch before it."""
        self.optimizer.zero_grad()
        losses = [torch.nn.functional.mse_loss(self.model(x), y) for x, y in (_batch(self.step, r) for r in ranks)]
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        for parameter in self.model.parameters():
            add_others(parameter.grad)  # type: ignore[operator]
        self.optimizer.step()
        self.step += 1
        return losses[0].item()

    def save(self, folder: Path) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        torch.save(state, folder / "state.pt")

    def load(self, state: dict[str, object]) -> None:
        self.model.load_state_dict(state["model"])  # type: ignore[arg-type]
        self.optimizer.load_state_dict(state["optimizer"])  # type: ignore[arg-type]
        self.step = state["step"]  # type: ignore[assignment]


def undisturbed(steps: int) -> float:
    """The last loss of the same training in one process without any interruption."""
    training = Training()
    for _ in range(steps):
        loss = training.train(list(range(RANKS)), lambda gradient: None)
    return loss


def _batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(1000 * step + rank)).double()
    return x, 0.4 * x.sum(1, keepdim=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
