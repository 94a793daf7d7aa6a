"""A few shapes of SVG with the colours of our pages, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

# Okabe and Ito's colours, as everywhere in Fairlead; a tenant or a policy has one colour in all pictures.
BLUE, ORANGE, GREEN, VERMILLION = "c0", "c1", "c2", "c3"

_STYLE = """
.card { fill: #ffffff; stroke: #dcdcd6 } .soft { fill: #eeeeea } .free { fill: #f4f4f1; stroke: #c9c9c2 }
.line { stroke: #5b616b; fill: none } .thin { stroke: #dcdcd6; fill: none } .arrow { fill: #5b616b }
.c0 { fill: #0072b2 } .c1 { fill: #e69f00 } .c2 { fill: #009e73 } .c3 { fill: #d55e00 }
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; fill: #1c1f24 }
.title { font-size: 15px; font-weight: 650 } .quiet { fill: #5b616b } .small { font-size: 11.5px } .on { fill: #ffffff }
@media (prefers-color-scheme: dark) {
.card { fill: #1d2126; stroke: #343a42 } .soft { fill: #262b31 } .free { fill: #22272d; stroke: #59606a }
.line { stroke: #a4abb5 } .thin { stroke: #343a42 } .arrow { fill: #a4abb5 }
.c0 { fill: #2f8fd0 } .c1 { fill: #e8a91c } .c2 { fill: #1fb487 } .c3 { fill: #e8712a }
text { fill: #e7e8ea } .quiet { fill: #a4abb5 }
}"""


def rect(x: float, y: float, width: float, height: float, kind: str, radius: float = 4) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """One line of text. `kind` is one or more of title, quiet, small, on; `anchor` is start, middle or end."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> str:
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A horizontal or vertical arrow."""
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    tip = [(x2, y2), (x2 - 7 * dx + 4 * dy, y2 - 7 * dy + 4 * dx), (x2 - 7 * dx - 4 * dy, y2 - 7 * dy - 4 * dx)]
    points = " ".join(f"{x:g},{y:g}" for x, y in tip)
    return line(x1, y1, x2 - 6 * dx, y2 - 6 * dy) + f'<polygon class="arrow" points="{points}"/>'


def picture(title: str, width: int, height: int, shapes: Sequence[str]) -> str:
    """A whole picture on a card of its own; the title is read by screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">\n<style>{_STYLE}\n</style>\n'
        + "\n".join([rect(0.5, 0.5, width - 1, height - 1, "card", 8), *shapes])
        + "\n</svg>\n"
    )
