"""What a scheduler and a training script agree upon: names and numbers that both sides must spell alike."""

from __future__ import annotations

LEASE_VARIABLE = "FAIRLEAD_LEASE"  # environment variable that holds the path of the lease's description
REPORT_VARIABLE = "FAIRLEAD_REPORT"  # and of the file in which a worker reports its progress
REPORT_EVERY_VARIABLE = "FAIRLEAD_REPORT_EVERY"  # seconds between two such reports
STOP_VARIABLE = "FAIRLEAD_STOP"  # path of a file that exists once the job is asked to stop
CHECKPOINTED = 85  # exit code: a checkpoint is written, the job wants to go on where it was
