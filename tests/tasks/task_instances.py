"""Task-level instances, hand-made and from hypothesis, and an oracle that tries everything."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fairlead.model.tasks import Instance, Schedule, instance, weighted_completion_s
from fairlead.sim.tasks.check import violations


def toy(*, j2_in_a_row: bool) -> Instance:
    """Figure 1 of Hare: three GPUs of three types, three jobs, no synchronisation and no switch cost."""
    return instance(
        arrival_s=np.zeros(3),
        rounds=np.array([1, 3 if j2_in_a_row else 1, 2]),
        scale=np.array([2, 1 if j2_in_a_row else 3, 2]),
        task_s=np.array([[1.5, 2.0, 1.0], [1.0, 2.0, 1.0], [2.0, 1.5, 0.5]]),
        gpus=np.array([1, 1, 1]),
    )


def drawn(case: Instance, rows: list[tuple[int, int, int, int, float]]) -> Schedule:
    """A schedule from (job, round, task, GPU, start) rows; ends follow from the task times."""
    job, round_, task, gpu, start = (np.array(column) for column in zip(*rows, strict=True))
    return Schedule(job, round_, task, gpu, start, start + case.known.task_s[job, case.type_of[gpu]])


def total(case: Instance, schedule: Schedule) -> float:
    """sum w C of a schedule, which must be feasible."""
    assert violations(case, schedule) == []
    return weighted_completion_s(case, schedule)


def optimum(case: Instance) -> float:
    """The least sum of w C, by trying every order of starts on every GPU. For at most a dozen tasks."""
    known, kind = case.known, case.type_of.tolist()
    T, S = known.task_s.tolist(), known.sync_s.tolist()
    k, K = known.scale.tolist(), case.tasks.tolist()

    @cache
    def rest(
        done: tuple[int, ...], open_s: tuple[float, ...], in_s: tuple[float, ...], free: tuple[float, ...]
    ) -> float:
        """`open_s`: when the current round of a job may start; `in_s`: when its gradients so far have arrived."""
        best = float("inf")
        for n in range(case.jobs):
            if done[n] == K[n]:
                continue
            for m, free_s in enumerate(free):
                end_s = max(open_s[n], free_s) + T[n][kind[m]]
                all_in_s = max(in_s[n], end_s + S[n][kind[m]])
                closes = (done[n] + 1) % k[n] == 0
                ended = done[n] + 1 == K[n]
                total_s = (float(known.weight[n]) * all_in_s if ended else 0.0) + rest(
                    (*done[:n], done[n] + 1, *done[n + 1 :]),
                    (*open_s[:n], all_in_s if closes else open_s[n], *open_s[n + 1 :]),
                    (*in_s[:n], 0.0 if closes else all_in_s, *in_s[n + 1 :]),
                    (*free[:m], end_s, *free[m + 1 :]),
                )
                best = min(best, total_s)
        return 0.0 if list(done) == K else best

    nothing = (0.0,) * case.jobs
    return rest((0,) * case.jobs, tuple(case.arrival_s.tolist()), nothing, (0.0,) * len(kind))


@st.composite
def instances(draw: Any, *, jobs: int = 12, equal_gpus: bool = False, switching: bool = True) -> Instance:
    """Up to four types with up to four GPUs each, job times that differ up to eightfold between types."""
    n = draw(st.integers(1, jobs))
    g = draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gpus = random.integers(0, 5, g)
    gpus[random.integers(g)] += 1
    fastest_s = random.uniform(0.1, 4.0, (n, 1))
    slower = np.ones((n, g)) if equal_gpus else random.uniform(1.0, 8.0, (n, g))
    batch = draw(st.booleans())
    sync_s = fastest_s * (np.full((n, g), 0.15) if equal_gpus else random.uniform(0.0, 1.0, (n, g)))
    sync_s *= draw(st.sampled_from((0.0, 1.0)))
    return instance(
        arrival_s=np.zeros(n) if batch else np.cumsum(random.exponential(3.0, n)),
        rounds=random.integers(1, 7, n),
        scale=random.integers(1, 9, n),
        task_s=fastest_s * slower,
        gpus=gpus,
        weight=random.integers(1, 6, n).astype(np.float64),
        sync_s=sync_s,
        switch_s=np.full(n, 0.1 if switching and draw(st.booleans()) else 0.0),
    )
