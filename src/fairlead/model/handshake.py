"""What a scheduler and a training script agree upon: names and numbers that both sides must spell alike."""

from __future__ import annotations

LEASE_VARIABLE = "FAIRLEAD_LEASE"  # environment variable that holds the path of the lease's description
REPORT_VARIABLE = "FAIRLEAD_REPORT"  # and of the file in which a worker reports its progress
CHECKPOINTED = 85  # exit code: a checkpoint is written, the job wants to go on where it was
