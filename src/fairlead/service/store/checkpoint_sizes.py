"""How much space the checkpoints take that the service stores, by tenant; measured at most twice a minute."""

from __future__ import annotations

import threading
import time
from collections import Counter

from fairlead.engines.runner import StoresCheckpoints
from fairlead.service.store.reads import Reads

_JOBS_AT_ONCE = 500  # in one query
KEPT_S = 30.0  # how long a measurement is used: a walk over many files takes seconds


class StoredCheckpoints:
    """Bytes of checkpoints by tenant."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._lock = threading.Lock()
        self._at_s: float | None = None
        self._bytes: Counter[str] = Counter()

    def of(self, tenant: str) -> int:
        with self._lock:
            if self._at_s is None or time.monotonic() - self._at_s > KEPT_S:
                self._bytes, self._at_s = self._measure(), time.monotonic()
            return self._bytes[tenant]

    def _measure(self) -> Counter[str]:
        total: Counter[str] = Counter()
        leases = self._reads.leases
        sizes = leases.checkpoint_bytes() if isinstance(leases, StoresCheckpoints) else {}
        jobs = list(sizes)
        for first in range(0, len(jobs), _JOBS_AT_ONCE):
            for job, tenant in self._reads.tenants_of(jobs[first : first + _JOBS_AT_ONCE]).items():
                total[tenant] += sizes[job]
        return total
