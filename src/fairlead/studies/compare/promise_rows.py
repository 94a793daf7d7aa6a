"""The verdicts about a policy's promises over seeds, and each of them in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.model.units import format_number
from fairlead.policies.policy import Promise
from fairlead.studies.compare.answer import PromiseOverSeeds
from fairlead.studies.compare.run_records import RunRecord
from fairlead.studies.fairness.promise_verdicts import PromiseVerdict, Standing

SMALL_PART = 0.05  # causes with a smaller part are not worth a word
_ORDER = (Standing.BROKEN, Standing.KEPT, Standing.NOT_PROMISED, Standing.NOT_MEASURED)


def promises_over_seeds(runs: Sequence[RunRecord]) -> tuple[PromiseOverSeeds, ...]:
    """One entry for each promise, in the order of the audit; none if a run was not audited."""
    if not runs or not all(run.promises for run in runs):
        return ()
    return tuple(_over_seeds(verdicts) for verdicts in zip(*(run.promises for run in runs), strict=True))


def _over_seeds(verdicts: Sequence[PromiseVerdict]) -> PromiseOverSeeds:
    first = verdicts[0]
    broken = [verdict for verdict in verdicts if verdict.standing is Standing.BROKEN]
    values = [verdict.value for verdict in broken or verdicts if verdict.standing is not Standing.NOT_MEASURED]
    known = [value for value in values if value is not None]
    worst = min if first.promise == Promise.SHARING_INCENTIVE else max
    causes = dict.fromkeys(cause for verdict in broken for cause in verdict.causes)
    return PromiseOverSeeds(
        promise=first.promise,
        standing=min((verdict.standing for verdict in verdicts), key=_ORDER.index),
        broken=len(broken),
        runs=len(verdicts),
        worst=worst(known) if known and len(known) == len(values) else None,
        bound=next((verdict.bound for verdict in verdicts if verdict.bound is not None), None),
        causes={cause: sum(one.causes.get(cause, 0.0) for one in broken) / len(broken) for cause in causes},
    )


PERCENTAGES = (
    'The percentages are parts of what was missing. They add up to 100 %, with what is named after "offset by" '
    f"subtracted; parts below {SMALL_PART:.0%} are not shown."
)


def promise_text(row: PromiseOverSeeds) -> str:
    """`broken 0.74 (2 of 3 seeds): whole gangs 90%, restarts 20%, offset by wrong speeds 10%`, `kept 0.97`."""
    unbounded = row.worst is None and row.standing in (Standing.BROKEN, Standing.NOT_PROMISED)
    value = "unbounded" if unbounded and row.promise == Promise.NO_ENVY else format_number(row.worst)
    text = str(row.standing) if value == "-" else f"{row.standing} {value}"
    if row.standing is not Standing.BROKEN:
        return text
    seeds = f" ({row.broken} of {row.runs} seeds)" if row.runs > 1 else ""
    lacked = {cause: part for cause, part in row.causes.items() if part >= SMALL_PART}
    offset = {cause: -part for cause, part in row.causes.items() if part <= -SMALL_PART}
    causes = _listed(lacked) + (f", offset by {_listed(offset)}" if offset else "")
    return text + seeds + (f": {causes}" if lacked else "")


def _listed(parts: Mapping[str, float]) -> str:
    """The causes, the largest first."""
    return ", ".join(f"{cause} {part:.0%}" for cause, part in sorted(parts.items(), key=lambda item: -item[1]))
