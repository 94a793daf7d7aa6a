"""How long a job pauses after starts that came to nothing, and the ends of pauses.

Without a pause, a job that cannot run would take its GPUs several times a second from jobs that can.
"""

from __future__ import annotations

import math

from fairlead.engines.arrays import one
from fairlead.engines.situation import Situation
from fairlead.model import events as ev
from fairlead.numerics.random import stream

FIRST_S = 1.0  # doubles from setback to setback
LONGEST_S = 300.0
GOOD_S = 600.0  # a lease that lasted this long came to something, even if it reported no progress
_SEED = 0  # a service has none of its own
_SHORTEST = 0.75  # of a pause, so that jobs that failed together do not all start together


def pause_s(job: str, setbacks: int) -> float:
    """The pause of a job after this number of setbacks in a row. It has a stream of its own, so it is always the same."""
    longest_s = min(FIRST_S * 2.0 ** min(setbacks - 1, 30), LONGEST_S)
    return longest_s * float(stream(_SEED, f"pause {job} {setbacks}").uniform(_SHORTEST, 1.0))


def again_s(s: Situation, j: int, setbacks: int) -> float:
    return s.now_s + pause_s(s.state.specs[j].id, setbacks)


def end_due(s: Situation) -> None:
    for j, pause in s.state.pauses.items():
        if s.now_s >= pause.until_s:
            end(s, j)


def end(s: Situation, j: int) -> None:
    s.outbox.put(ev.Released(s.now_s, one(j)))


def next_s(s: Situation) -> float:
    """Seconds until the next pause ends; infinity if there is none."""
    return max(min((pause.until_s for pause in s.state.pauses.values()), default=math.inf) - s.now_s, 0.0)
