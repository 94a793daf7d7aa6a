"""Jobs whose number of nodes is fixed: exactly that many, with equally many GPUs on each.

Policies and placers need not know about shapes. They decide how many GPUs of which type a job gets, or even where; this step
then finds nodes of that type in the right shape. It also gives what stays idle because of a shape to jobs that wait.
"""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.view import View
from fairlead.placement.pool import Pool, free_after
from fairlead.placement.refill import refill_order


def in_shape(view: View, changed: dict[int, Spot]) -> dict[int, Spot]:
    """The changes with every spot in the shape of its job. Without such jobs they are returned as they are.

    A job whose new spot has the wrong shape gets nodes of the same type; if there are none it stays where it is if it
    can, and waits otherwise.
    """
    if not view.exact_nodes.any():
        return changed
    wrong = [j for j, spot in changed.items() if spot and not has_shape(spot, int(view.exact_nodes[j]))]
    if not wrong:
        return changed
    fitted = {j: spot for j, spot in changed.items() if j not in wrong}
    before = [view.spots.get(j, NOWHERE) for j in changed]
    pool = Pool(view.cluster, free_after(view.node_free, taken=fitted.values(), given_back=before))
    for j in sorted(wrong):
        fitted[j] = _spot(view, pool, j, changed[j])
    refill_idle(view, pool, fitted)
    return {j: spot for j, spot in sorted(fitted.items()) if spot != view.spots.get(j, NOWHERE)}


def has_shape(spot: Spot, nodes: int) -> bool:
    """Whether the spot has this many nodes with equally many GPUs; any spot has if `nodes` is 0."""
    return not nodes or (len(spot) == nodes and len({gpus for _, gpus in spot}) == 1)


def _spot(view: View, pool: Pool, j: int, wanted: Spot) -> Spot:
    here, exact = view.spots.get(j, NOWHERE), int(view.exact_nodes[j])
    ((type_, gpus),) = view.cluster.gpus_by_type(wanted).items()
    if here and view.held_type[j] == type_ and pool.has(here):  # only its nodes would have changed
        pool.take(here)
        return here
    spot = pool.place_evenly(type_, gpus, exact, view.last_spot(j))
    if not spot and here and pool.has(here):
        pool.take(here)
        return here
    return spot


def refill_idle(view: View, pool: Pool, fitted: dict[int, Spot]) -> None:
    """Idle GPUs go to jobs that would have none, each on its fastest type with room."""
    idle = [j for j in range(view.jobs) if not fitted.get(j, view.spots.get(j, NOWHERE))]
    waiting = np.array(idle, dtype=np.int64)
    for j in refill_order(view, waiting, np.zeros(len(waiting))).tolist():
        here = view.spots.get(j, NOWHERE)
        if here and pool.has(here):
            pool.take(here)
            fitted[j] = here
            continue
        for t in np.argsort(-view.rate[j], kind="stable").tolist():
            if view.rate[j, t] > 0 and (spot := _place(view, pool, j, t)):
                fitted[j] = spot
                break


def _place(view: View, pool: Pool, j: int, type_: int) -> Spot:
    gpus, exact = int(view.width[j]), int(view.exact_nodes[j])
    if exact:
        return pool.place_evenly(type_, gpus, exact, view.last_spot(j))
    spot = pool.place(type_, gpus, view.last_spot(j))
    if len(spot) > 1 and not view.rate_on(j, spot):
        pool.give_back(spot)
        return NOWHERE
    return spot
