"""Relaxed scale-fixed synchronisation for PyTorch (Hare, HPDC 2022): k tasks a round on however many GPUs were granted.

    sync = ScaleFixed(model)                        # after torch.distributed.init_process_group, if there are several ranks
    for step in range(first, last):
        for task in sync.tasks:                     # this rank's part of 0 .. k-1
            sync.backward(loss_of(model, batch(step, task)))
        sync.step(optimizer)
        if sync.should_stop():
            sync.stop(lambda folder: torch.save(state, folder / "state.pt"))

A task is the micro-batch that one GPU of the job's reference width would have had, so that a batch is chosen by step and
task and never by rank. With g_i the gradient of task i's mean loss, c_m the tasks of rank m and k = sum_m c_m,

    every rank steps along   1/k * sum_m sum_{i of m} g_i

which is what k ranks with one task each would do, up to the order of summation; only the pace depends on the GPUs.
Not covered: what couples the samples of a batch beyond their mean, such as statistics of batch normalisation, which see
one task at a time here, and random numbers drawn by rank rather than by task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from fairlead import lease


class ScaleFixed:
    """`k` is needed only outside of Fairlead; a lease says how many tasks each of its GPUs runs."""

    def __init__(self, model: torch.nn.Module, k: int | None = None) -> None:
        several = dist.is_available() and dist.is_initialized()
        rank, ranks = (dist.get_rank(), dist.get_world_size()) if several else (0, 1)
        by_process = lease.tasks_by_process()
        counts = counts_by_rank(by_process if len(by_process) == ranks else lease.tasks(), ranks, k)
        self.k = sum(counts)
        first = sum(counts[:rank])
        self.tasks = range(first, first + counts[rank])
        self._ranks = ranks
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        # NCCL sends what lies on a GPU and nothing else.
        self._device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        if ranks > 1:
            with torch.no_grad():
                for tensor in (*model.parameters(), *model.buffers()):
                    dist.broadcast(tensor, 0)

    def backward(self, loss: torch.Tensor) -> None:
        """Adds the gradient of one task's mean loss, at its weight."""
        (loss / self.k).backward()

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """One update, the same on every rank; gradients are empty afterwards."""
        if self._ranks > 1:
            self._sum_gradients()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def mean(self, value: float) -> float:
        """Mean over all tasks of what each rank summed over its own, such as a loss to be shown."""
        total = torch.tensor([value], dtype=torch.float64, device=self._device)
        if self._ranks > 1:
            dist.all_reduce(total)
        return float(total) / self.k

    def should_stop(self) -> bool:
        """Whether any rank was asked to; all ranks hear the same and can leave at the same step."""
        asked = torch.tensor([float(lease.should_stop())], device=self._device)
        if self._ranks > 1:
            dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        return bool(asked.item())

    def stop(self, write: Callable[[Path], object]) -> NoReturn:
        """Rank 0 saves, and nobody leaves before it has: launchers end all ranks as soon as one is gone."""
        lease.checkpoint(write)
        if self._ranks > 1:
            dist.barrier()
        lease.stop()

    @torch.no_grad()
    def _sum_gradients(self) -> None:
        """One message for each kind of number. A parameter that no task anywhere used keeps no gradient at all."""
        kinds: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
        for parameter in self._parameters:
            kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        for (dtype, device), parameters in kinds.items():
            used = torch.tensor([p.grad is not None for p in parameters], dtype=dtype, device=device)
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            flat = torch.cat([part.reshape(-1) for part in parts] + [used])
            dist.all_reduce(flat)
            sizes = [part.numel() for part in parts]
            *sums, used = flat.split([*sizes, len(parts)])
            for parameter, total, users in zip(parameters, sums, used.tolist(), strict=True):
                parameter.grad = total.view_as(parameter) if users else None


def counts_by_rank(granted: Sequence[int], ranks: int, k: int | None) -> list[int]:
    """Tasks of each rank: as the lease says where each GPU has a rank, all of them on a single rank, else evenly."""
    total = sum(granted) or k
    if total is None:
        raise ValueError("outside of Fairlead nobody says how many tasks a round has; pass k, the number of GPUs meant")
    if len(granted) == ranks:
        return list(granted)
    return [total // ranks + (rank < total % ranks) for rank in range(ranks)]
