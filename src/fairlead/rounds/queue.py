"""The queue: jobs that have arrived, have not ended and are not held, ascending by position."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairlead.model.arrays import NO_JOBS, IntArray


class Queue:
    """The queue of active jobs. Changes are collected until `jobs` is read, because a round changes few jobs."""

    def __init__(self, jobs: IntArray = NO_JOBS) -> None:
        self._jobs = jobs
        self._news: list[int] = []
        self._gone: list[int] = []
        self._released = False  # `_news` contains a job that was released
        self.fixed: dict[str, Any] = {}  # columns of these jobs that never change, once they were read

    @property
    def jobs(self) -> IntArray:
        if self._news or self._gone:
            jobs = np.concatenate((self._jobs, np.array(self._news, dtype=np.int64)))
            if self._released:
                jobs, self._released = np.sort(jobs), False
            stays = np.ones(len(jobs), dtype=np.bool_)
            stays[np.searchsorted(jobs, self._gone)] = False
            self._jobs = jobs[stays]
            self._news, self._gone = [], []
            self.fixed = {}
        return self._jobs

    def arrive(self, job: int) -> None:
        self._news.append(job)

    def leave(self, jobs: IntArray) -> None:
        self._gone += jobs.tolist()

    def forget(self, *columns: str) -> None:
        """Drop columns that something else than the queue has changed."""
        for name in columns:
            self.fixed.pop(name, None)

    def come_back(self, jobs: IntArray) -> None:
        for j in jobs.tolist():
            if j in self._gone:  # `jobs` was not read since it was held
                self._gone.remove(j)
            else:
                self._news.append(j)
                self._released = True
        self.fixed = {}
