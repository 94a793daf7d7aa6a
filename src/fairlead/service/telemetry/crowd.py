"""The mean number of active jobs over any span of time."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable


class Crowd:
    """Arrivals and ends of jobs.

    With A(t) the integral of the number of active jobs n up to t, and a_i, e_i the arrivals and ends,

        A(t) = sum_{a_i <= t} (t - a_i) - sum_{e_i <= t} (t - e_i)
    """

    def __init__(self, arrivals_s: Iterable[float] = (), ends_s: Iterable[float] = ()) -> None:
        self._arrivals, self._ends = _Times(arrivals_s), _Times(ends_s)

    def arrive(self, time_s: float) -> None:
        self._arrivals.append(time_s)

    def end(self, time_s: float) -> None:
        self._ends.append(time_s)

    def mean(self, from_s: float, to_s: float) -> float:
        """The mean number of active jobs; 1 if no time has passed."""
        return (self._integral(to_s) - self._integral(from_s)) / (to_s - from_s) if to_s > from_s else 1.0

    def _integral(self, time_s: float) -> float:
        return self._arrivals.passed_s(time_s) - self._ends.passed_s(time_s)


class _Times:
    """Ascending times, with their running sums from the first one on, which keeps the sums small."""

    def __init__(self, times_s: Iterable[float]) -> None:
        self._times, self._sums = array("d"), array("d")
        for time_s in times_s:
            self.append(time_s)

    def append(self, time_s: float) -> None:
        time_s = max(time_s, self._times[-1]) if self._times else time_s
        first_s = self._times[0] if self._times else time_s
        self._sums.append((self._sums[-1] if self._sums else 0.0) + time_s - first_s)
        self._times.append(time_s)

    def passed_s(self, time_s: float) -> float:
        """The sum of the seconds from each of the times to `time_s`."""
        count = bisect_right(self._times, time_s)
        return count * (time_s - self._times[0]) - self._sums[count - 1] if count else 0.0
