"""Who holds a job of the steered partition.

Slurm shows no more than two kinds of hold. Those of an administrator (`scontrol hold`) are not touched by Fairlead. Its own
and those that job_submit.lua and exit code 85 leave are of the kind of users (`scontrol uhold`). A hold that the owner of a
job asked for looks the same, so job_submit.lua adds a word to the comment of the job (`OWN_HOLD`).
"""

from __future__ import annotations

from enum import StrEnum

from fairlead.engines.slurm.queue import SlurmJob

OWN_HOLD = "fairlead-own-hold"  # in the comment of a job: its owner wants it to wait

# What Slurm prints for holds that Fairlead sets or that exit code 85 causes. Newer versions write the second in one word.
_OURS = ("JobHeldUser", "job requeued in held state", "job_requeued_in_held_state", "SPECIAL_EXIT", "")


class HeldBy(StrEnum):
    NOBODY = "nobody"
    FAIRLEAD = "fairlead"
    OWNER = "owner"
    ADMINISTRATOR = "administrator"  # or Slurm itself, such as after failures to start


def holder(job: SlurmJob) -> HeldBy:
    """Who wants the job to wait; for a running job, who wants it to wait once it is requeued."""
    if not job.held:
        return HeldBy.NOBODY
    if job.reason not in _OURS:
        return HeldBy.ADMINISTRATOR
    return HeldBy.OWNER if OWN_HOLD in job.comment.split() else HeldBy.FAIRLEAD
