"""One style for every chart: a policy has the same colour, line and marker wherever a comparison draws it.

Colours are Okabe and Ito's, without the yellow that is invisible on white paper, and two of Tol's. They can be
distinguished with every common kind of colour blindness. If there are more policies than colours, lines and markers
distinguish them too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

BLUE, ORANGE, GREEN, VERMILLION, PINK, SKY, BLACK, WINE, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#000000",
    "#882255",
    "#777777",
)
COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PINK, SKY, BLACK, WINE, GREY)
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
OTHERS = "#C8C8C8"  # tenants beyond those with a colour of their own


@dataclass(frozen=True, slots=True)
class Style:
    colour: str
    dash: str = "solid"
    marker: str = "circle"


# The four systems have colours of their own; a family shares a colour and differs in line and marker.
KNOWN = {
    "oef-coop": Style(GREEN),
    "oef-noncoop": Style(GREEN, "dash", "square"),
    "fft": Style(BLUE),
    "fft-ranked": Style(BLUE, "dot", "diamond"),
    "hops": Style(VERMILLION),
    "hops-late": Style(VERMILLION, "dash", "square"),
    "hare": Style(PINK),
    "hare-online": Style(PINK, "dash", "square"),
    "hlas": Style(PINK, "dot", "diamond"),
    "hlas-rounds": Style(PINK, "dashdot", "triangle-up"),
    "gavel": Style(ORANGE),
    "gavel-sjf": Style(ORANGE, "dash", "square"),
    "equal-share": Style(ORANGE, "dot", "diamond"),
    "gavel-waterfill": Style(ORANGE, "dashdot", "triangle-up"),
    "gavel-hierarchical": Style(GREEN, "dot", "diamond"),
    "gavel-ftf": Style(GREEN, "dashdot", "triangle-up"),
    "gavel-makespan": Style(BLUE, "dash", "square"),
    "themis": Style(GREY, "dash", "square"),
    "sia": Style(SKY),
    "allox": Style(SKY, "dash", "square"),
    "gandiva-fair": Style(SKY, "dot", "diamond"),
    "las": Style(WINE),
    "tiresias": Style(WINE, "dash", "square"),
    "tiresias-fft": Style(WINE, "dot", "diamond"),
    "fifo": Style(BLACK),
    "fifo-sticky": Style(BLACK, "dash", "square"),
    "srtf": Style(GREY),
}


def styles_of(policies: Sequence[str]) -> dict[str, Style]:
    """Styles of all policies of a comparison: known ones by name, others what is still free, in their order."""
    styles = {policy: KNOWN[policy] for policy in policies if policy in KNOWN}
    for policy in policies:
        if policy not in styles:
            styles[policy] = _free_style(policy, styles.values())
    return styles


def _free_style(policy: str, taken: Iterable[Style]) -> Style:
    """The first unused colour; if there is none, the first unused line in a colour; otherwise by name alone."""
    n = int.from_bytes(hashlib.sha256(policy.encode()).digest()[:8], "big")
    colour, rest = n % len(COLOURS), n // len(COLOURS)
    # Never a solid line with a circle, which belongs to policies that we know by name.
    own = Style(COLOURS[colour], DASHES[1 + rest % 3], MARKERS[3 + rest // 3 % 5])
    lines = {(style.colour, style.dash) for style in taken}
    free = [c for c in COLOURS if c not in {colour for colour, _ in lines}]
    if free:
        return replace(own, colour=free[0])
    spare = [(c, d) for d in DASHES[1:] for c in COLOURS if (c, d) not in lines]
    return replace(own, colour=spare[0][0], dash=spare[0][1]) if spare else own


def tenant_colours(tenants: Sequence[str]) -> dict[str, str]:
    """Colours of tenants in their order; the last ones share one grey."""
    own = (BLUE, ORANGE, GREEN, VERMILLION, PINK, SKY, BLACK, WINE)
    return {name: own[i] if i < len(own) else OTHERS for i, name in enumerate(tenants)}
