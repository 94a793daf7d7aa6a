"""A training job as its owner describes it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairlead.model.errors import InputError

# Larger numbers are treated as typing errors: no trace that we know comes near them.
MOST_GPUS = 100_000
LONGEST_S = 1e12
MOST_STEPS = 1e18


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What the owner asks for. `gpus` is the reference width, at which `steps` are counted.

    `widths` are all GPU counts that the job can run on (rigid: just `gpus`), `types` the GPU types that it may use
    (empty: any that has the memory). `steps` is None if the owner does not declare a length. `relaxed` allows a grant
    that mixes GPU types. `nodes` fixes the shape of a rigid job: exactly this many nodes, with equally many GPUs on each.
    `run_limit_s` is the time after which another system ends a run of it, however far it is; it bounds estimates of its
    length, and policies do not see it.
    """

    id: str
    tenant: str
    model: str
    arrival_s: float
    gpus: int
    steps: float | None
    widths: tuple[int, ...] = ()
    types: tuple[str, ...] = ()
    weight: float = 1.0
    relaxed: bool = False
    nodes: int | None = None
    run_limit_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("id", "tenant", "model"):
            if not getattr(self, name):
                raise InputError(f"job {self.id or '?'}: {name} is empty; give it a name")
        self._check_number("arrival_s", self.arrival_s, 0.0, LONGEST_S)
        self._check_number("weight", self.weight, 0.0, 1e9, open_below=True)
        if self.steps is not None:
            self._check_number("steps", self.steps, 0.0, MOST_STEPS, open_below=True)
        if self.run_limit_s is not None:
            self._check_number("run_limit_s", self.run_limit_s, 0.0, LONGEST_S, open_below=True)
        for width in (self.gpus, *self.widths):
            if not 1 <= width <= MOST_GPUS:
                raise InputError(f"job {self.id}: gpus is {width}; wanted a whole number from 1 to {MOST_GPUS}")
        if self.nodes is not None:
            self._check_shape(self.nodes)
        if not self.widths:
            object.__setattr__(self, "widths", (self.gpus,))
        elif self.gpus not in self.widths or list(self.widths) != sorted(set(self.widths)):
            raise InputError(f"job {self.id}: widths {self.widths} must ascend, without repeats, and hold {self.gpus}")

    def _check_shape(self, nodes: int) -> None:
        if not 1 <= nodes <= self.gpus or self.gpus % nodes:
            raise InputError(f"job {self.id}: {self.gpus} GPUs on {nodes} nodes; wanted equally many on each node")
        if self.relaxed or self.widths not in ((), (self.gpus,)):
            raise InputError(f"job {self.id}: a job on exactly {nodes} nodes can neither be resized nor mix GPU types")

    def _check_number(self, name: str, value: float, low: float, high: float, *, open_below: bool = False) -> None:
        if not (math.isfinite(value) and low <= value <= high and not (open_below and value == low)):
            bounds = f"{'above' if open_below else 'from'} {low:g} up to {high:g}"
            raise InputError(f"job {self.id}: {name} is {value}; wanted a number {bounds}")
