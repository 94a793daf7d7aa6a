"""Workloads of training rounds as in Hare's evaluation: eight models, four GPU types, a stated load.

Speed-ups are read from the paper's figure 2, and task times are implied by its table of switch costs; models that are
not in the figure have the values of similar ones. Times are in units of 0.1 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.tasks import Instance, instance
from fairlead.numerics.random import stream

TYPES = ("v100", "t4", "m60", "k80")


@dataclass(frozen=True, slots=True)
class TaskModel:
    domain: str
    speedup: tuple[float, float, float, float]  # by type, over the K80
    task: float  # on a V100
    gib: float  # weights, gradients and momentum in FP32, from the usual parameter counts; ours
    switch: Mapping[str, float]  # ms per switch


def _switch(default: float, pipeswitch: float, hare: float) -> dict[str, float]:
    return {"default": default, "pipeswitch": pipeswitch, "hare": hare}


MODELS: dict[str, TaskModel] = {
    "vgg19": TaskModel("cv", (6.8, 2.2, 1.4, 1.0), 1.49, 1.6, _switch(3289, 4.01, 2.77)),
    "resnet50": TaskModel("cv", (6.9, 2.2, 1.5, 1.0), 0.53, 0.29, _switch(5961, 4.75, 2.04)),
    "inception-v3": TaskModel("cv", (6.9, 2.2, 1.5, 1.0), 1.70, 0.3, _switch(7807, 5.03, 2.46)),
    "bert-base": TaskModel("nlp", (5.6, 1.8, 1.3, 1.0), 4.40, 1.23, _switch(9017, 12.57, 5.03)),
    "transformer": TaskModel("nlp", (5.6, 1.8, 1.3, 1.0), 4.20, 0.73, _switch(5257, 10.34, 5.79)),
    "deepspeech": TaskModel("speech", (4.1, 1.7, 1.4, 1.0), 3.37, 0.42, _switch(5126, 8.91, 4.27)),
    "fastgcn": TaskModel("recommendation", (2.2, 2.0, 1.2, 1.0), 0.39, 0.01, _switch(5327, 2.86, 1.83)),
    "graphsage": TaskModel("recommendation", (2.2, 2.0, 1.2, 1.0), 0.28, 0.01, _switch(5214, 2.42, 0.96)),
}
DOMAINS = ("cv", "nlp", "speech", "recommendation")
QUARTERS = dict.fromkeys(DOMAINS, 0.25)
MIXED = {1: 0.3, 2: 0.25, 4: 0.25, 8: 0.2}
UNIT_MS = 100.0
SYNC = 0.15  # of the shortest task time, at 25 Gbit/s
SWITCH = 0.03  # of the shortest task time
GBIT = 25.0
BURST = 8  # jobs that arrive together if arrivals are bursty


@dataclass(frozen=True, slots=True)
class TaskWorkload:
    """One setting. `load` is the offered work relative to what all GPUs can do together; None: all jobs at time 0."""

    name: str
    gpus: tuple[int, int, int, int]  # by type
    jobs: int
    load: float | None
    scales: Mapping[int, float] = field(default_factory=lambda: MIXED)  # k -> probability
    rounds: tuple[int, int] = (20, 200)
    weighted: bool = False  # weights uniform in 1..5 instead of 1
    bursty: bool = False
    domains: Mapping[str, float] = field(default_factory=lambda: QUARTERS)
    gbit: float = GBIT
    sync: float = SYNC  # of the shortest task time, at 25 Gbit/s
    switch_part: float = SWITCH  # of the shortest task time, if `switch` is empty
    batch: float = 1.0  # task times grow with it and the number of rounds falls; the amount of data sent stays the same
    switch: str = ""  # a column of the switch table; empty: `switch_part` of the task time
    load_gpus: tuple[int, int, int, int] | None = None  # whose capacity `load` refers to, if not that of `gpus`
    load_jobs: int | None = None  # the number of jobs that make up `load`; with more jobs, arrivals are faster

    @property
    def offered(self) -> float:
        """The load on `gpus` themselves, where they are a multiple of `load_gpus`."""
        jobs = self.jobs / (self.load_jobs or self.jobs)
        return (self.load or 0.0) * jobs * sum(self.load_gpus or self.gpus) / sum(self.gpus)

    def describe(self) -> str:
        scales = ", ".join(f"{k}: {part:g}" for k, part in self.scales.items())
        load = "all at time 0" if self.load is None else f"load {self.offered:.3g}{', bursty' if self.bursty else ''}"
        weights = ", weights 1-5" if self.weighted else ""
        return f"{self.jobs} jobs on {','.join(map(str, self.gpus))}, {load}, k {{{scales}}}{weights}"


def draw(setting: TaskWorkload, seed: int) -> Instance:
    random = stream(seed, "task workload")
    model = models(setting, seed)
    speedup = np.array([m.speedup for m in model])
    fastest = np.array([m.task for m in model])  # n  at the normal batch
    task_s = setting.batch * fastest[:, None] * speedup[:, :1] / speedup
    rounds = np.maximum(
        1, np.rint(random.integers(setting.rounds[0], setting.rounds[1] + 1, setting.jobs) / setting.batch)
    )
    scale = random.choice(list(setting.scales), setting.jobs, p=list(setting.scales.values()))
    weight = random.integers(1, 6, setting.jobs).astype(np.float64) if setting.weighted else np.ones(setting.jobs)
    gaps = random.exponential(1.0, setting.jobs)
    switch_s = (
        np.array([m.switch[setting.switch] / UNIT_MS for m in model])
        if setting.switch
        else setting.switch_part * fastest
    )
    return instance(
        arrival_s=_arrivals(setting, gaps, rounds * scale, task_s),
        rounds=rounds.astype(np.int64),
        scale=scale.astype(np.int64),
        task_s=task_s,
        gpus=np.array(setting.gpus),
        weight=weight,
        sync_s=np.repeat(setting.sync * GBIT / setting.gbit * fastest[:, None], len(TYPES), axis=1),
        switch_s=switch_s,
    )


def models(setting: TaskWorkload, seed: int) -> list[TaskModel]:
    """The model of each job, in order of arrival."""
    random = stream(seed, "task models")
    of_domain = {domain: [model for model in MODELS.values() if model.domain == domain] for domain in DOMAINS}
    picked = random.choice(list(setting.domains), setting.jobs, p=list(setting.domains.values()))
    return [of_domain[domain][int(random.integers(len(of_domain[domain])))] for domain in picked]


def _arrivals(setting: TaskWorkload, gaps: FloatArray, tasks: FloatArray, task_s: FloatArray) -> FloatArray:
    if setting.load is None:
        return np.zeros(setting.jobs)
    counts = np.array(setting.load_gpus or setting.gpus)
    work_s = float((tasks / (counts / task_s).sum(axis=1)).mean())  # of the whole cluster, per job
    gap_s = work_s / setting.load * (setting.load_jobs or setting.jobs) / setting.jobs
    if setting.bursty:
        gaps = np.repeat(gaps[::BURST] * BURST, BURST)[: setting.jobs] * (np.arange(setting.jobs) % BURST == 0)
    arrival_s = np.cumsum(gaps) * gap_s
    return np.asarray(arrival_s - arrival_s[0])
