"""Simple orders: in every round the jobs are in a queue, and each takes its fastest type with room."""

from __future__ import annotations

import math

import numpy as np

from fairlead.model.allocation import Answer, Grants, Level
from fairlead.model.view import View
from fairlead.placement.fill import fill_in_order
from fairlead.placement.moves import held_by, joined, left_over
from fairlead.policies.policy import Knows, RoundPolicy


def fifo(view: View, memory: None) -> tuple[Grants, None]:
    """In order of arrival; a job may move to a faster type when one comes free."""
    return Grants(*fill_in_order(np.arange(view.jobs), view.width, view.rate, view.capacity)), None


def fifo_sticky(view: View, memory: None) -> tuple[Grants, None]:
    """In order of arrival; a job that has started stays there until it ends."""
    held = held_by(view, np.flatnonzero(view.held_gpus))
    waiting = np.flatnonzero(view.held_gpus == 0)
    more = Grants(*fill_in_order(waiting, view.width, view.rate, left_over(view, held)))
    return joined(held, more), None


def srtf(view: View, memory: None) -> tuple[Grants, None]:
    """Shortest remaining time on the fastest type first; a job of unknown length goes last."""
    assert view.total is not None, "srtf declares that it knows lengths"
    assert view.done is not None
    fastest = view.ideal_rate.max(axis=1, initial=0.0)  # j  samples/s
    with np.errstate(divide="ignore"):
        remaining_s = np.nan_to_num((view.total - view.done) / fastest, nan=np.inf)
    order = np.lexsort((view.job, remaining_s))
    jobs, types, gpus = fill_in_order(order, view.width, view.rate, view.capacity)
    # Running jobs only get further ahead of waiting ones, so while all have their fastest type, nothing can change.
    at_best = bool((view.rate[jobs, types] == fastest[jobs]).all())
    return Grants(jobs, types, gpus, Answer(holds_until_s=math.inf if at_best else view.now_s)), None


POLICIES = (
    RoundPolicy(
        name="fifo",
        summary="In order of arrival every round; each job takes its fastest type with room and may move.",
        paper="plain order",
        level=Level.GRANTS,
        allocate=fifo,
    ),
    RoundPolicy(
        name="fifo-sticky",
        summary="In order of arrival; a job stays where it started until it ends.",
        paper="plain order",
        level=Level.GRANTS,
        allocate=fifo_sticky,
    ),
    RoundPolicy(
        name="srtf",
        summary="Shortest remaining time on the fastest type first.",
        paper="plain order",
        level=Level.GRANTS,
        allocate=srtf,
        knows=frozenset({Knows.LENGTHS}),
    ),
)
