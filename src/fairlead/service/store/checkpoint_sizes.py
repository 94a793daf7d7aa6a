"""How much space the checkpoints take that the service stores, by tenant and job; measured at most twice a minute."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping

from fairlead.engines.runner import StoresCheckpoints
from fairlead.service.store.reads import Reads

_JOBS_AT_ONCE = 500  # in one query
KEPT_S = 30.0  # how long a measurement is used: a walk over many files takes seconds


class StoredCheckpoints:
    """Bytes of checkpoints by tenant and by job."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._lock = threading.Lock()
        self._at_s: float | None = None
        self._of_job: Mapping[str, int] = {}
        self._of_tenant: Counter[str] = Counter()

    def of(self, tenant: str) -> int:
        with self._lock:
            self._measure()
            return self._of_tenant[tenant]

    def of_job(self, job: str) -> int:
        """0 also for checkpoints in a directory that the job has named, which the service does not look into."""
        with self._lock:
            self._measure()
            return self._of_job.get(job, 0)

    def _measure(self) -> None:
        if self._at_s is not None and time.monotonic() - self._at_s <= KEPT_S:
            return
        total: Counter[str] = Counter()
        leases = self._reads.leases
        sizes = leases.checkpoint_bytes() if isinstance(leases, StoresCheckpoints) else {}
        jobs = list(sizes)
        for first in range(0, len(jobs), _JOBS_AT_ONCE):
            for job, tenant in self._reads.tenants_of(jobs[first : first + _JOBS_AT_ONCE]).items():
                total[tenant] += sizes[job]
        self._of_job, self._of_tenant, self._at_s = sizes, total, time.monotonic()
