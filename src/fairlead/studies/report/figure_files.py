"""Figure files for papers and reports: one style, safe for colour blindness, drawn without a display."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.model.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, whose colours can be distinguished with every common kind of colour blindness.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
_SUFFIXES = (".png", ".pdf", ".svg")
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "fairlead",
}


def new_figure(rows: int, columns: int, title: str) -> Figure:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(4.2 * columns, 2.9 * rows), layout="constrained")
        figure.subplots(rows, columns)
        figure.suptitle(title)
    return figure


def save(figure: Figure, path: str, title: str | None = None) -> None:
    """Save a figure as PNG, PDF or SVG, by its file name; without a date, so that the same figure gives the same file.

    The title is stored in the file's metadata; a paper's figure has a caption instead.
    """
    import matplotlib as mpl

    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(f'figure "{path}": wanted a name that ends in {", ".join(_SUFFIXES)}')
    date: Mapping[str, str | None] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(suffix, {})
    facts = date if title is None else {**date, "Title": title}
    try:
        with mpl.rc_context(_STYLE):
            figure.savefig(path, dpi=150, metadata=facts)
    except OSError as error:
        raise InputError(f"cannot write the figure: {error.strerror}", path=path) from None
