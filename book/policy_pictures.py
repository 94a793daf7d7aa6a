"""What each policy does with the same six jobs of two tenants: which job holds which GPUs, over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import fairlead
from book.svg import BLUE, ORANGE, line, picture, rect, text
from fairlead.model.jobs import JobSpec
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.traces.formats import Trace

CLUSTER = {"v100": 2, "k80": 2}
SPEEDUP = {"vision": 7.0, "speech": 2.0}  # of a v100 over a k80
COLOUR = {"vision": BLUE, "speech": ORANGE}
# id, tenant, arrival in minutes, GPUs, minutes of work on v100s
JOBS = (
    ("v1", "vision", 0, 1, 120),
    ("s1", "speech", 0, 2, 80),
    ("v2", "vision", 10, 2, 40),
    ("s2", "speech", 30, 1, 90),
    ("v3", "vision", 60, 1, 20),
    ("s3", "speech", 90, 1, 30),
)
ROUND_MIN, SHOWN_MIN = 10, 300
LEFT, WIDTH, LANE, GAP = 84.0, 690.0, 24.0, 14.0


def policy_picture(name: str) -> str:
    stays = list(
        fairlead.simulate("v100:2,k80:2", _trace(), name, throughputs=_speeds(), round=f"{ROUND_MIN}m").stays.rows()
    )
    top = {type_: 62 + i * (LANE * gpus + GAP) for i, (type_, gpus) in enumerate(CLUSTER.items())}
    bottom = max(top[type_] + LANE * gpus for type_, gpus in CLUSTER.items())
    shapes = [text(24, 34, f"Six jobs under {name}", "title"), *_axis(top["v100"], bottom)]
    for type_, gpus in CLUSTER.items():
        shapes.append(text(24, top[type_] + LANE * gpus / 2 + 4, f"{gpus} {type_}"))
        shapes += [rect(LEFT, top[type_] + LANE * k + 1, WIDTH, LANE - 2, "soft", 2) for k in range(gpus)]
        shapes += _bars([stay for stay in stays if stay["type"] == type_], top[type_], gpus)
    for i, tenant in enumerate(COLOUR):
        shapes += [
            rect(LEFT + 90 * i, bottom + 26, 13, 13, COLOUR[tenant], 3),
            text(LEFT + 90 * i + 19, bottom + 37, tenant),
        ]
    ends = {stay["job"]: stay["end_s"] for stay in sorted(stays, key=lambda one: one["end_s"])}
    last = ", ".join(f"{job} {ends[job] / 60:.0f}" for job, *_ in JOBS if job in ends)
    shapes.append(text(LEFT + 190, bottom + 37, f"minute in which each job ends: {last}", "quiet small"))
    return picture(f"Six jobs of two tenants under {name}", 810, int(bottom) + 54, shapes)


def _axis(top: float, bottom: float) -> list[str]:
    shapes = []
    for hour in range(SHOWN_MIN // 60 + 1):
        x = LEFT + WIDTH * hour * 60 / SHOWN_MIN
        shapes += [line(x, top, x, bottom, "thin"), text(x, bottom + 14, f"{hour}h", "quiet small", "middle")]
    return shapes


def _bars(stays: Sequence[dict[str, Any]], top: float, gpus: int) -> list[str]:
    """A bar for each stay on the lanes of its GPUs; parts of GPUs, which single tasks hold on average, are thinner."""
    shapes, free_at = [], [0.0] * gpus  # when each lane is free
    used: dict[float, float] = defaultdict(float)  # of an interval of single tasks: GPUs drawn so far
    merged = _merged(stays)
    for stay in merged:
        tenant = next(tenant for job, tenant, *_ in JOBS if job == stay["job"])
        begin_s, end_s, held = stay["start_s"], min(stay["end_s"], SHOWN_MIN * 60.0), float(stay["gpus"])
        if end_s <= begin_s:
            continue
        x, width = LEFT + WIDTH * begin_s / 60 / SHOWN_MIN, WIDTH * (end_s - begin_s) / 60 / SHOWN_MIN
        if stay["node"]:
            lanes = [lane for lane in range(gpus) if free_at[lane] <= begin_s + 1e-6][: round(held)]
            for lane in lanes:
                free_at[lane] = end_s
            tops = [(top + LANE * lane + 2, LANE - 4) for lane in lanes]
        else:
            tops = [(top + LANE * min(used[begin_s], gpus - held), LANE * held)]
            used[begin_s] += held
        shapes += [rect(x, y, max(width - 1, 0.7), height, COLOUR[tenant], 2) for y, height in tops]
        if width > 20 and stay["node"]:
            kind = "on small" if tenant == "vision" else "small"
            shapes += [text(x + 5, y + 14, stay["job"], kind) for y, _ in tops]
    return shapes


def _merged(stays: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Stays in order of time; one that follows another of the same job on the same GPUs is part of it."""
    merged: list[dict[str, Any]] = []
    for stay in sorted(stays, key=lambda one: (one["start_s"], one["job"])):
        before = next((one for one in reversed(merged) if one["job"] == stay["job"]), None)
        same = before is not None and before["end_s"] == stay["start_s"] and before["gpus"] == stay["gpus"]
        if before is not None and same and stay["node"]:
            before["end_s"] = stay["end_s"]
        else:
            merged.append(dict(stay))
    return merged


@cache
def _speeds() -> Profile:
    rate = {(tenant, type_): SPEEDUP[tenant] if type_ == "v100" else 1.0 for tenant in SPEEDUP for type_ in CLUSTER}
    rows = [
        Speed(model, gpu, gpus, 1, 1.0, speed, "example") for (model, gpu), speed in rate.items() for gpus in (1, 2)
    ]
    return Profile("example", tuple(rows), {model: ModelFacts(restart_s=30.0) for model in SPEEDUP})


@cache
def _trace() -> Trace:
    jobs = [
        JobSpec(job, tenant, tenant, 60.0 * arrival, gpus, 60.0 * minutes * SPEEDUP[tenant])
        for job, tenant, arrival, gpus, minutes in JOBS
    ]
    return Trace(tuple(jobs), "six jobs", "generated")
