"""Our jobs that are jobs of Slurm, by Slurm's id."""

from __future__ import annotations

from fairlead.engines.slurm.intake import TakenOver
from fairlead.model.phases import HAS_GPUS
from fairlead.model.public_job import ENDED_PHASES, PHASE_NAMES
from fairlead.service.store.reads import LAST_TAKEN, Reads

ACTOR = "slurm"  # in whose name requests are made that owners made to Slurm

_ACTIVE = [name for name in PHASE_NAMES if name not in ENDED_PHASES]
_WITH_LEASE = [PHASE_NAMES[phase] for phase in HAS_GPUS]
_ID = "json_extract(j.command, '$.foreign')"
_NOT_OVER = (
    f"SELECT {_ID}, j.id, e.phase FROM events.jobs e CROSS JOIN jobs j ON j.id = e.id "
    f"WHERE e.phase IN ({', '.join('?' * len(_ACTIVE))}) "
    f"UNION ALL SELECT {_ID}, j.id, '' FROM jobs j WHERE j.number > {LAST_TAKEN}"
)
# A release counts whoever asked for it: as long as Slurm shows the hold, the job is then paused again.
_HELD = (
    "SELECT target, kind, max(number) FROM requests "
    "WHERE kind = 'release' OR (kind = 'hold' AND actor = ?) GROUP BY target"
)
_LEFT = "SELECT target FROM requests WHERE kind = 'cancel' AND actor = ?"


def steered_jobs(reads: Reads) -> dict[str, TakenOver]:
    """Those that are not over."""
    held = {target for target, kind, _ in reads.rows(_HELD, (ACTOR,)) if kind == "hold"}
    left = {target for (target,) in reads.rows(_LEFT, (ACTOR,))}
    rows = reads.rows(_NOT_OVER, _ACTIVE)
    return {
        foreign: TakenOver(id_, id_ in held, id_ in left, phase in _WITH_LEASE)
        for foreign, id_, phase in rows
        if foreign
    }
