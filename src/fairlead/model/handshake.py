"""The names and numbers that the scheduler and a training script must agree on."""

from __future__ import annotations

LEASE_VARIABLE = "FAIRLEAD_LEASE"  # environment variable that holds the path of the lease's description
REPORT_VARIABLE = "FAIRLEAD_REPORT"  # path of the file in which a worker reports its progress
REPORT_EVERY_VARIABLE = "FAIRLEAD_REPORT_EVERY"  # seconds between two such reports
STOP_VARIABLE = "FAIRLEAD_STOP"  # path of a file that exists once the job is asked to stop
CHECKPOINTED = 85  # exit code: a checkpoint is written, and the job wants to continue from it
