"""What a tenant lacked, by cause, from the books of an audit; the parts add up."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from fairlead.placement.rounding import LONGEST_STAY
from fairlead.studies.fairness.ledger import SUMS, Ledger

# GPU-rounds of its widest gang that rounding may owe an owner, in addition to one round of its share.
MAY_OWE = 2.0 + LONGEST_STAY


class LackCause(StrEnum):
    """Why a tenant had less than its private slice, in the order in which the causes are taken out of the books."""

    FEW_JOBS = "too few jobs at the time"
    UNUSABLE_TYPES = "types that its waiting jobs cannot use"
    QUOTAS = "quotas"
    WHOLE_GANGS = "whole gangs"
    SHORT_TIME = "too short a time"
    DIVISION = "the policy's own division"
    SPREAD = "gangs on more nodes than necessary"
    RESTARTS = "restarts"
    WRONG_SPEEDS = "wrong speeds"
    OTHERS_MORE = "others held more than their slice"  # of envy only


def causes_of_shortfall(ledger: Ledger, u: int, round_s: float) -> dict[LackCause, float]:
    """Value x seconds that tenant u lacked while it wanted more, by cause. The sum is slice - achieved - repaid.

        slice - achieved = (what the policy saw missing)  + spread + restarts + wrong speeds
        seen missing     = few jobs + types + quotas + gangs + turns - ahead

    What a tenant had beyond its slice at other times (ahead, repaid) repays turns first, then whole gangs, because that is what
    deficits are for, then the others in proportion. Of the turns that were not repaid, as much as rounding may owe at
    any time is due to too short a time: it is bounded, however long a run is. The rest was the policy's division, which
    is negative if the tenant was ahead on balance.
    """
    row = dict(zip(SUMS, ledger.sums[u].tolist(), strict=True))
    turns, ahead = row["turns"], row["ahead"] + row["repaid"]
    repaid = min(turns, ahead)
    turns, ahead = turns - repaid, ahead - repaid
    gangs = row["whole_gangs"] - min(row["whole_gangs"], ahead)
    ahead -= row["whole_gangs"] - gangs
    outside = {name: row[name] for name in ("few_jobs", "unusable_types", "quotas")}
    total = sum(outside.values())
    keeps = 1.0 - min(ahead / total, 1.0) if total > 0 else 1.0
    ahead -= (1.0 - keeps) * total
    short = min(turns, _may_be_owed(row, round_s))
    return {
        LackCause.FEW_JOBS: outside["few_jobs"] * keeps,
        LackCause.UNUSABLE_TYPES: outside["unusable_types"] * keeps,
        LackCause.QUOTAS: outside["quotas"] * keeps,
        LackCause.WHOLE_GANGS: gangs,
        LackCause.SHORT_TIME: short,
        LackCause.DIVISION: turns - short - ahead,
        LackCause.SPREAD: row["spread"],
        LackCause.RESTARTS: row["restarts"],
        LackCause.WRONG_SPEEDS: row["wrong_speeds"],
    }


def causes_of_envy(ledger: Ledger, u: int, v: int, round_s: float) -> dict[LackCause, float]:
    """Value x seconds, per weight, by which v's GPUs were worth more to u than its own. The sum is others - own.

    A private slice is the same for both by weight, so the part above it is what v held beyond its slice. The part below
    is what u lacked, by the causes of its whole shortfall in proportion, except those that do not change what it held.
    """
    own, others, alone = (float(pair[u, v]) for pair in (ledger.own, ledger.others, ledger.alone))
    causes = causes_of_shortfall(ledger, u, round_s)
    held = {cause: value for cause, value in causes.items() if cause in _WHAT_IT_HELD and value > 0}
    lacked, total = max(alone - own, 0.0), sum(held.values())
    if lacked > others - own:
        lacked = others - own
    parts = (
        {cause: value / total * lacked for cause, value in held.items()} if total > 0 else {LackCause.DIVISION: lacked}
    )
    return {**parts, LackCause.OTHERS_MORE: others - own - lacked}


_WHAT_IT_HELD = (
    *(LackCause.FEW_JOBS, LackCause.UNUSABLE_TYPES, LackCause.QUOTAS),
    *(LackCause.WHOLE_GANGS, LackCause.SHORT_TIME, LackCause.DIVISION),
)


def _may_be_owed(row: Mapping[str, float], round_s: float) -> float:
    """Value x seconds: one round of the slice, and `MAY_OWE` rounds of the widest gang, at the slice's mean value."""
    if row["slice_gpu_s"] <= 0 or row["wanted_s"] <= 0:
        return 0.0
    value = row["slice"] / row["slice_gpu_s"]  # of a GPU
    share, widest = row["slice_gpu_s"] / row["wanted_s"], row["widest_gpu_s"] / row["wanted_s"]
    return value * round_s * (share + MAY_OWE * widest)
