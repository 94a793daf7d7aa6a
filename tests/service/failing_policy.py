"""A policy of an operator's own that fails in one way or another, but not in the small round with which it is tried."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import time
from typing import Any

import numpy as np

from fairlead.model.allocation import Grants, Level
from fairlead.model.view import View
from fairlead.placement.fill import fill_in_order
from fairlead.policies.policy import RoundPolicy
from fairlead.policies.ranges import Word

TRIED_NODES = 2  # of the small round


def raises() -> object:
    raise KeyError("no such thing")


def loops() -> object:
    while True:
        time.sleep(0)


def loops_in_c() -> object:
    """It holds the interpreter's lock, so that no other thread of the process can do anything about it."""
    return re.match(r"(a+)+$", "a" * 60 + "b")


def segfaults() -> object:
    return ctypes.string_at(0)


def allocates() -> object:
    kept = []
    while True:
        kept.append(bytearray(1 << 24))


def prints() -> object:
    print('{"ready": true}', flush=True)
    os.write(1, b'{"decision_s": 1e9}\n')
    return "nonsense"


def exits() -> object:
    os._exit(7)


def leaves() -> object:
    sys.exit("goodbye")


def closes() -> object:
    os.closerange(0, 1 << 16)
    time.sleep(3600)
    return None


def scribbles() -> object:
    """It writes to every descriptor that it finds."""
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"d" + b"\xff" * 100)
        except OSError:
            continue
    time.sleep(3600)
    return None


def returns_none() -> object:
    return None


def changes_places(view: View) -> object:
    """It gives every job all GPUs of the first type."""
    jobs = np.arange(view.jobs)
    zero = np.zeros(view.jobs, dtype=np.int64)
    return Grants(jobs, zero, zero + int(view.capacity[0])), None


WAYS = {
    "raises": raises,
    "loops": loops,
    "loops-in-c": loops_in_c,
    "segfaults": segfaults,
    "allocates": allocates,
    "prints": prints,
    "exits": exits,
    "leaves": leaves,
    "closes": closes,
    "scribbles": scribbles,
    "returns-none": returns_none,
}


def fail(view: View, memory: None, *, way: str = "not") -> Any:
    if len(view.cluster.nodes) > TRIED_NODES:
        if way in WAYS:
            return WAYS[way]()
        if way == "grants-too-much":
            return changes_places(view)
    order = np.arange(view.jobs)
    return Grants(*fill_in_order(order, view.width, view.rate, view.capacity)), None


POLICY = RoundPolicy(
    name="failing",
    summary="Fails in the chosen way.",
    paper="made up",
    level=Level.GRANTS,
    allocate=fail,
    ranges={"way": Word("not", "grants-too-much", *WAYS)},
)
