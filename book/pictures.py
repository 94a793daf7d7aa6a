"""The pictures of the book. `python -m book.pictures` writes them to docs/images; shares and speeds in them are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fairlead
from book.svg import BLUE, GREEN, ORANGE, VERMILLION, arrow, line, picture, rect, text
from fairlead.traces.profiles import load_default_profile

FOLDER = Path(__file__).parents[1] / "docs" / "images"
TENANTS = {"vision": BLUE, "speech": ORANGE, "text": GREEN}
SPEEDUPS = {"vision": {"k80": 1, "v100": 7}, "speech": {"k80": 1, "v100": 2}}
INSTANCE = {
    "gpus": {"k80": 8, "v100": 8},
    "tenants": [{"name": name, "speedups": speedups} for name, speedups in SPEEDUPS.items()],
}


def overview() -> str:
    """Jobs of three teams, the scheduler, and a mixed cluster."""
    shapes = [text(24, 34, "Jobs of three teams", "title"), text(24, 54, "each needs some GPUs at once", "quiet small")]
    queue = [("vision", 4), ("speech", 2), ("text", 1), ("vision", 2), ("speech", 4), ("text", 2)]
    for i, (tenant, gpus) in enumerate(queue):
        y = 70 + 32 * i
        shapes += [rect(24, y, 150, 26, "soft"), text(34, y + 17.5, tenant)]
        shapes += [rect(90 + 19 * g, y + 5, 16, 16, TENANTS[tenant], 3) for g in range(gpus)]
    shapes += [arrow(190, 165, 246, 165), rect(250, 96, 168, 138, "soft", 8)]
    shapes += [text(334, 124, "Fairlead", "title", "middle")]
    rows = ["a policy decides", "round after round", "which jobs run where,", "which jobs wait,", "and why"]
    shapes += [text(334, 148 + 18 * i, row, "quiet small", "middle") for i, row in enumerate(rows)]
    shapes += [arrow(422, 165, 474, 165), text(484, 34, "A cluster of mixed GPUs", "title")]
    shapes += [text(484, 54, "fast nodes and slow ones", "quiet small")]
    nodes: list[tuple[str, list[str]]] = [
        ("v100", ["vision"] * 4),
        ("v100", ["speech"] * 2 + ["vision"] * 2),
        ("p100", ["speech"] * 4),
        ("p100", ["text"] * 2 + ["speech"] * 2),
        ("k80", ["text", "vision", "vision", ""]),
        ("k80", ["text"] * 2 + [""] * 2),
    ]
    for i, (type_, held) in enumerate(nodes):
        shapes += _node(484 + 158 * (i % 2), 70 + 64 * (i // 2), f"{type_} node", held)
    return picture("Jobs of three teams on a cluster of mixed GPUs, scheduled by Fairlead", 810, 276, shapes)


def _node(x: float, y: float, name: str, held: Sequence[str]) -> list[str]:
    kinds = [TENANTS[tenant] if tenant else "free" for tenant in held]
    shapes = [rect(x, y, 148, 56, "soft", 6), text(x + 10, y + 18, name, "quiet small")]
    return shapes + [rect(x + 10 + 32 * i, y + 25, 26, 24, kind, 4) for i, kind in enumerate(kinds)]


def speedups() -> str:
    """How much faster models run on other types than on a k80, from the profile that comes with Fairlead."""
    profile, types = load_default_profile(), {"k80": "free", "p100": ORANGE, "v100": BLUE, "a100": GREEN}
    shapes = [text(24, 34, "A GPU is not worth the same to every job", "title")]
    shapes += [text(24, 54, "speed on one GPU, in units of the same job's speed on a k80", "quiet small")]
    models = ("recommendation", "lstm-lm", "cyclegan", "resnet50")
    rate = {model: {type_: profile.samples_per_s(model, type_, 1) for type_ in types} for model in models}
    speed = {model: {type_: of[type_] / of["k80"] for type_ in types} for model, of in rate.items()}
    most = max(max(row.values()) for row in speed.values())
    for i, model in enumerate(models):
        x = 40 + 190 * i
        for k, (type_, kind) in enumerate(types.items()):
            height = 150 * speed[model][type_] / most
            shapes.append(rect(x + 38 * k, 240 - height, 32, height, kind, 2))
            shapes.append(text(x + 38 * k + 16, 234 - height, f"{speed[model][type_]:.1f}", "small", "middle"))
            shapes.append(text(x + 38 * k + 16, 256, type_, "quiet small", "middle"))
        shapes.append(text(x + 73, 277, model, "", "middle"))
    return picture("Speed-ups of four models on four GPU types", 810, 294, [*shapes, line(30, 240, 780, 240)])


def shares() -> str:
    """From fractional shares to whole GPUs to nodes, for two tenants under gavel."""
    share = _divided("gavel")
    shapes = [text(24, 34, "Shares", "title"), text(24, 54, "GPUs on average over time", "quiet small")]
    for i, type_ in enumerate(("v100", "k80")):
        y, x = 92 + 84 * i, 24.0
        shapes.append(text(24, y - 8, f"8 {type_}", "quiet small"))
        for tenant, kind in list(TENANTS.items())[:2]:
            width = 20 * share[tenant][type_]
            shapes.append(rect(x, y, width, 30, kind, 2))
            if width > 36:
                shapes.append(
                    text(x + width / 2, y + 20, f"{share[tenant][type_]:.1f}", "on" if kind == BLUE else "", "middle")
                )
            x += width
    shapes += [arrow(200, 148, 258, 148), text(229, 132, "whole", "quiet small", "middle")]
    shapes += [text(272, 34, "Grants", "title"), text(272, 54, "whole gangs for one round", "quiet small")]
    grants = {"v100": ["vision"] * 6 + ["speech"] * 2, "k80": ["speech"] * 8}
    for i, (type_, held) in enumerate(grants.items()):
        y = 92 + 84 * i
        shapes.append(text(272, y - 8, f"8 {type_}", "quiet small"))
        shapes += [rect(272 + 24 * g, y, 20, 30, TENANTS[tenant], 3) for g, tenant in enumerate(held)]
    shapes += [arrow(474, 148, 532, 148), text(503, 132, "packed", "quiet small", "middle")]
    shapes += [text(546, 34, "Placement", "title"), text(546, 54, "nodes of four GPUs", "quiet small")]
    for i, (type_, held) in enumerate(grants.items()):
        for n in range(2):
            shapes += _narrow_node(546 + 122 * n, 72 + 84 * i, f"{type_} node {n + 1}", held[4 * n : 4 * n + 4])
    shapes += _legend(24, 262, list(TENANTS)[:2])
    note = "What rounding leaves out is remembered: a tenant that got less than its share is served first later."
    return picture(
        "Shares become grants and grants become nodes", 810, 306, [*shapes, text(24, 290, note, "quiet small")]
    )


def _narrow_node(x: float, y: float, name: str, held: Sequence[str]) -> list[str]:
    shapes = [rect(x, y, 112, 56, "soft", 6), text(x + 8, y + 17, name, "quiet small")]
    return shapes + [rect(x + 8 + 25 * i, y + 25, 21, 24, TENANTS[tenant], 3) for i, tenant in enumerate(held)]


def _divided(policy: str) -> dict[str, dict[str, float]]:
    """GPUs by tenant and type."""
    division: dict[str, Any] = fairlead.allocate(INSTANCE, policy)
    return {name: dict(row) for name, row in division["shares"].items()}


def _worth(to: str, share: Mapping[str, float]) -> float:
    return sum(SPEEDUPS[to][type_] * gpus for type_, gpus in share.items())


def envy() -> str:
    """What each tenant's GPUs are worth to it, next to what the other's would be, under three policies."""
    shapes = [text(24, 34, "Envy: would a tenant swap its GPUs for those of the other one?", "title")]
    shapes += [text(24, 54, "worth of a bundle of GPUs to a tenant, in units of its slowest type", "quiet small")]
    for p, policy in enumerate(("equal-share", "oef-noncoop", "oef-coop")):
        share, x = _divided(policy), 32 + 262 * p
        shapes.append(text(x, 86, policy, "title"))
        for i, (me, other) in enumerate((("vision", "speech"), ("speech", "vision"))):
            y = 104 + 74 * i
            own, swapped = _worth(me, share[me]), _worth(me, share[other])
            verdict = "envies" if swapped > own * 1.001 else "content"
            shapes.append(text(x, y + 8, f"{me}: {verdict}", "small"))
            for k, (value, kind, word) in enumerate(((own, TENANTS[me], "its own"), (swapped, "free", "the other's"))):
                width, top = 2.3 * value, y + 16 + 22 * k
                shapes += [rect(x, top, width, 18, kind, 2)]
                shapes.append(text(x + width + 6, top + 13, f"{value:.1f} {word}", "quiet small"))
    note = "8 v100 and 8 k80; a v100 is worth 7 k80 to vision and 2 k80 to speech."
    return picture("Envy under three policies", 810, 282, [*shapes, text(24, 264, note, "quiet small")])


def finish_time_fairness() -> str:
    """A job alone on its part of the cluster, and the same job in the shared cluster."""
    shapes = [text(24, 34, "Finish-time fairness (FTF)", "title")]
    shapes += [
        text(24, 54, "one of four jobs: alone on a quarter of every type, or in the shared cluster", "quiet small")
    ]
    rows: list[tuple[str, list[tuple[float, float, str]], float]] = [
        ("alone", [(0, 400, "free")], 400),
        ("shared, FTF 0.75", [(60, 160, BLUE), (220, 300, BLUE)], 300),
        ("shared, FTF 1.3", [(130, 230, VERMILLION), (330, 520, VERMILLION)], 520),
    ]
    for i, (name, runs, end) in enumerate(rows):
        y = 84 + 46 * i
        shapes += [text(24, y + 19, name), line(170, y + 30, 750, y + 30, "thin")]
        shapes += [rect(170 + start, y, stop - start, 28, kind, 3) for start, stop, kind in runs]
        shapes.append(text(170 + end + 8, y + 19, "ends", "quiet small"))
    shapes += [line(170, 74, 170, 226), line(570, 74, 570, 226), text(170, 246, "arrives", "quiet small", "middle")]
    shapes.append(text(570, 246, "end of the job on its own share", "quiet small", "middle"))
    note = "FTF = time in the shared cluster / time on an equal share. At most 1: sharing did not hurt. Gaps are waits."
    return picture("Finish-time fairness", 810, 286, [*shapes, text(24, 272, note, "quiet small")])


def round_() -> str:
    """What happens in one round, from events to the engine and back."""
    shapes = [text(24, 34, "What a round does", "title")]
    shapes += [
        text(24, 54, "the shaded steps are a pure function: the same input gives the same decision", "quiet small")
    ]
    steps = [
        ("Events", "arrivals, ends, reports,", "failures, requests"),
        ("State", "events are folded;", "a view is built"),
        ("Policy", "returns shares, grants", "or nodes"),
        ("Lowering", "whole gangs, nodes,", "quotas, few moves"),
        ("Decision", "what stops and starts,", "and why others wait"),
    ]
    for i, (name, first, second) in enumerate(steps):
        x = 24 + 156 * i
        shapes += [rect(x, 78, 138, 78, "soft" if 1 <= i <= 3 else "free", 6)]
        shapes += [text(x + 69, 102, name, "title", "middle")]
        shapes += [
            text(x + 69, 124, first, "quiet small", "middle"),
            text(x + 69, 141, second, "quiet small", "middle"),
        ]
        if i:
            shapes.append(arrow(x - 18, 117, x - 1, 117))
    shapes += [line(717, 156, 717, 200), line(717, 200, 580, 200), rect(240, 178, 340, 44, "free", 6)]
    words = "Engine: the simulator, this machine or Slurm"
    shapes += [text(410, 205, words, "", "middle"), line(240, 200, 93, 200), arrow(93, 200, 93, 158)]
    note = (
        "Every event and decision is in the journal before it takes effect, so that a run can be repeated and checked."
    )
    return picture("What a round does", 810, 264, [*shapes, text(24, 248, note, "quiet small")])


def _legend(x: float, y: float, tenants: Sequence[str]) -> list[str]:
    shapes: list[str] = []
    for i, tenant in enumerate(tenants):
        shapes += [rect(x + 90 * i, y - 11, 13, 13, TENANTS[tenant], 3), text(x + 90 * i + 19, y, tenant)]
    return shapes


PICTURES: dict[str, Callable[[], str]] = {
    "overview": overview,
    "speedups": speedups,
    "shares": shares,
    "envy": envy,
    "finish-time-fairness": finish_time_fairness,
    "round": round_,
}


def draw_all(folder: Path) -> list[Path]:
    """Write every picture, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")
    return [folder / f"{name}.svg" for name in PICTURES]


if __name__ == "__main__":
    draw_all(FOLDER)
