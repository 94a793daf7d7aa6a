"""Relaxed scale-fixed synchronisation for PyTorch (Hare, HPDC 2022): k tasks a round on any number of granted GPUs.

    sync = ScaleFixed(model)                        # after torch.distributed.init_process_group, if there are several ranks
    for step in range(first, last):
        for task in sync.tasks:                     # this rank's part of 0 .. k-1
            sync.backward(loss_of(model, batch(step, task)))
        sync.step(optimizer)
        if sync.should_stop():
            sync.stop(lambda folder: torch.save(state, folder / "state.pt"))

A task is the micro-batch of one GPU at the job's reference width, so a batch is chosen by step and task and never by
rank. With g_i the gradient of task i's mean loss, c_m the tasks of rank m and k = sum_m c_m,

    every rank steps along   1/k * sum_m sum_{i of m} g_i

which is what k ranks with one task each would do, up to the order of summation; only the speed depends on the GPUs.
Not covered are couplings between the samples of a batch other than their mean, such as the statistics of batch
normalisation, which are computed over one task at a time here, and random numbers drawn by rank rather than by task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from fairlead import lease


class ScaleFixed:
    """Synchronises the gradients of a round's tasks. Only without Fairlead, `k` is their number."""

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
        # NCCL sends only tensors on a GPU.
        self._device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        if ranks > 1:
            with torch.no_grad():
                for tensor in (*model.parameters(), *model.buffers()):
                    dist.broadcast(tensor, 0)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the weighted gradient of one task's mean loss."""
        (loss / self.k).backward()

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the parameters, equally on every rank, and clear the gradients."""
        if self._ranks > 1:
            self._sum_gradients()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def mean(self, value: float) -> float:
        """The mean over all tasks of a value that each rank summed over its own, such as a loss to print."""
        total = torch.tensor([value], dtype=torch.float64, device=self._device)
        if self._ranks > 1:
            dist.all_reduce(total)
        return float(total) / self.k

    def should_stop(self) -> bool:
        """Whether any rank was asked to stop; all ranks get the same answer and can exit at the same step."""
        requested = torch.tensor([float(lease.should_stop())], device=self._device)
        if self._ranks > 1:
            dist.all_reduce(requested, op=dist.ReduceOp.MAX)
        return bool(requested.item())

    def stop(self, write: Callable[[Path], object]) -> NoReturn:
        """Save on rank 0 and exit. No rank exits earlier, because launchers end all ranks as soon as one is gone."""
        lease.checkpoint(write)
        if self._ranks > 1:
            dist.barrier()
        lease.stop()

    @torch.no_grad()
    def _sum_gradients(self) -> None:
        """Sum the gradients in one message per data type and device; a parameter that no task used gets no gradient."""
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
    """The tasks of each rank: those of its GPU if each granted GPU has a rank, else divided evenly."""
    total = sum(granted) or k
    if total is None:
        raise ValueError(
            "without Fairlead the number of tasks in a round is unknown; pass k, the reference number of GPUs"
        )
    if len(granted) == ranks:
        return list(granted)
    return [total // ranks + (rank < total % ranks) for rank in range(ranks)]
