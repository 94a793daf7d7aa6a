"""Whether a tenant may submit one more job: its limits are checked in the transaction that would store the job."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable

from fairlead.model.errors import FairleadError
from fairlead.model.limits import TenantLimits
from fairlead.service.store.reads import Reads

Admit = Callable[[sqlite3.Connection], None]
WINDOW_S = 60.0  # of `max_submits`


class LimitError(FairleadError):
    """A limit of the tenant is reached. `retry_s` is how long to wait, if waiting helps by itself."""

    def __init__(self, code: str, message: str, remedy: str, retry_s: int | None = None) -> None:
        super().__init__(message)
        self.code, self.remedy, self.retry_s = code, remedy, retry_s


def admit(tenant: str, limits: TenantLimits, stored_bytes: int, reads: Reads) -> Admit:
    """A check to be made before a job is stored, which raises LimitError; `stored_bytes` are those of checkpoints."""

    def check(connection: sqlite3.Connection) -> None:
        _check_checkpoints(tenant, limits, stored_bytes)
        if limits.max_submits is not None:
            _check_submits(connection, tenant, limits.max_submits)
        if limits.max_queued is not None:
            _check_queue(connection, tenant, limits.max_queued, reads)

    return check


def _check_checkpoints(tenant: str, limits: TenantLimits, stored_bytes: int) -> None:
    """Refuse more jobs of a tenant whose checkpoints take too much space. None of them is ever removed for that."""
    most = limits.checkpoint_bytes
    if most is not None and stored_bytes >= most:
        raise LimitError(
            "checkpoints_full",
            f"the checkpoints of tenant {tenant} take {stored_bytes} bytes; its limit is {most}",
            "remove checkpoints of jobs that have ended, or ask an operator to raise checkpoint_bytes; jobs that run "
            "keep saving",
        )


def _check_submits(connection: sqlite3.Connection, tenant: str, most: int) -> None:
    now_s = time.time()
    remedy = "submit fewer jobs, or ask an operator to raise max_submits"
    if not most:
        raise LimitError("too_many_submits", f"tenant {tenant} may not submit jobs: its limit is 0 a minute", remedy)
    # The job that was submitted `most` jobs ago. A time in the future is from before the clock was set back.
    query = "SELECT submitted_s FROM jobs WHERE tenant = ? ORDER BY number DESC LIMIT 1 OFFSET ?"
    row = connection.execute(query, (tenant, most - 1)).fetchone()
    if row is not None and now_s - WINDOW_S < row[0] <= now_s:
        retry_s = math.ceil(row[0] + WINDOW_S - now_s)
        raise LimitError(
            "too_many_submits",
            f"tenant {tenant} has submitted {most} jobs within a minute, which is its limit",
            f"try again in {retry_s} s, or ask an operator to raise max_submits",
            retry_s,
        )


def _check_queue(connection: sqlite3.Connection, tenant: str, most: int, reads: Reads) -> None:
    taken, waiting = reads.taken_and_waiting(tenant)
    query = "SELECT count(*) FROM jobs WHERE tenant = ? AND number > ?"
    queued = waiting + int(connection.execute(query, (tenant, taken)).fetchone()[0])
    if queued >= most:
        raise LimitError(
            "queue_full",
            f"tenant {tenant} has {queued} jobs in the queue; its limit is {most}",
            "wait until some have started, cancel some, or ask an operator to raise max_queued",
        )
