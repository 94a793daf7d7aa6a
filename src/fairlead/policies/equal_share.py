"""Every job gets its isolated 1/n of every type, against which fairness is measured."""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import Level, Shares
from fairlead.model.view import View
from fairlead.numerics.isolated import isolated_shares
from fairlead.policies.policy import RoundPolicy


def equal_share(view: View, memory: None) -> tuple[Shares, None]:
    """x_jt = m_t w_j / sum(w), at most the job's gang; the refill distributes GPUs of types that a job cannot use."""
    shares = isolated_shares(view.rate > 0, view.width, view.capacity, view.weight)
    return Shares(shares, np.arange(view.jobs), view.job), None


POLICY = RoundPolicy(
    name="equal-share",
    summary="Every job gets its isolated 1/n of every GPU type.",
    paper="Gavel (OSDI 2020), isolated baseline",
    level=Level.SHARES,
    allocate=equal_share,
)
