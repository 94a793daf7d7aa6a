"""Hands the jobs of the steered partition back to Slurm's own order.

No record of Fairlead is needed: what it set is in the queue. Running jobs keep running, and jobs that their owner or an
administrator holds stay on hold.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.holds import HeldBy, holder
from fairlead.engines.slurm.queue import JobStage, SlurmJob

AT_ONCE = 200  # jobs that one command releases
_PASSES, _PAUSE_S = 5, 1.0  # jobs that are just ending cannot be released at once


@dataclass(frozen=True, slots=True)
class HandingBack:
    """What is to be done, and which jobs stay on hold and for whom. Jobs have the names that users see."""

    unpin: tuple[str, ...]  # required nodes are cleared
    release: tuple[str, ...]
    stay: dict[str, HeldBy]

    @property
    def commands(self) -> list[list[str]]:
        """Slurm changes the nodes of one job at a time, but releases many.

        Tasks of an array are named one by one, because the number of an array releases what owners hold in it.
        """
        parts = [self.release[first : first + AT_ONCE] for first in range(0, len(self.release), AT_ONCE)]
        unpin = [["scontrol", "update", f"JobId={job}", "NodeList="] for job in self.unpin]
        return [*unpin, *(["scontrol", "release", ",".join(part)] for part in parts)]


def plan_departure(queue: Sequence[SlurmJob], partition: str) -> HandingBack:
    """Node lists of waiting jobs are cleared, and what Fairlead holds is released, waiting or running."""
    jobs = [job for job in queue if job.partition == partition]
    waiting = [job for job in jobs if job.stage is JobStage.PENDING]
    active = [job for job in jobs if job.stage is JobStage.ACTIVE]
    return HandingBack(
        unpin=tuple(job.id for job in waiting if job.required_nodes),
        release=tuple(job.id for job in (*waiting, *active) if holder(job) is HeldBy.FAIRLEAD),
        stay={job.id: holder(job) for job in waiting if holder(job) in (HeldBy.OWNER, HeldBy.ADMINISTRATOR)},
    )


def leave(slurm: Slurm, partition: str, departure: HandingBack) -> tuple[HandingBack, list[str]]:
    """Carry a plan out. Returns what is left to do, and what Slurm said about it: nothing, if all went well.

    The queue decides about success: a job that ended meanwhile cannot be released, and need not be.
    """
    refused: list[str] = []
    for attempt in range(_PASSES):
        refused = _refused(slurm, departure)
        departure = plan_departure(slurm.queue(), partition)
        if not departure.commands:
            return departure, []
        if attempt + 1 < _PASSES:
            time.sleep(_PAUSE_S)
    return departure, refused


def _refused(slurm: Slurm, departure: HandingBack) -> list[str]:
    refused = []
    for words in departure.commands:
        try:
            slurm.run(*words)
        except SlurmError as error:
            refused.append(str(error))
    return refused
