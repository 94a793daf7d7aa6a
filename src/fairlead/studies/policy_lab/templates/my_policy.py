"""A policy of your own: least attained GPU-time first, each job on the type that suits it best.

fairlead check-policy my_policy.py:policy
fairlead compare --cluster a100:8,v100:16,t4:16 --generate defaults --policies fifo,gavel,my_policy.py:policy --report out.html
"""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import Grants, Level
from fairlead.model.view import View
from fairlead.policies.policy import RoundPolicy


def allocate(view: View, memory: None, *, patience_s: float = 0.0) -> tuple[Grants, None]:
    """Decide which jobs hold which GPUs until the next round.

    Columns of the view have one entry per active job (j) and GPU type (t). The returned memory is passed in again next
    time (None at first; this policy remembers nothing). Keyword-only arguments are parameters (`--param patience_s=60`).
    Do not change the view, and do not read a clock.
    """
    free = view.capacity.copy()  # t  GPUs
    order = np.lexsort((view.job, view.attained_gpu_s - patience_s * view.wait_s))  # ties: the earlier job first
    rows = []
    for j in order.tolist():
        for t in np.argsort(-view.rate[j], kind="stable").tolist():
            if view.rate[j, t] > 0 and free[t] >= view.width[j]:
                free[t] -= view.width[j]
                rows.append((j, t, int(view.width[j])))
                break
    jobs, types, gpus = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Grants(jobs, types, gpus), memory


policy = RoundPolicy(
    name="my-policy",
    summary="Least attained GPU-time first, each job on the type that suits it best.",
    paper="mine",
    level=Level.GRANTS,  # or SHARES (fractions by owner), PLACEMENT (nodes)
    allocate=allocate,
    knows=frozenset(),  # Knows.LENGTHS if it may see the lengths of jobs; the report will mention it
)
