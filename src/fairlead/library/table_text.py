"""Tables as text: CSV, JSON, LaTeX, and single values as people read them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.units import format_duration, format_number

KIND = "table/1"
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_ESCAPED = re.compile(r"[\\~^&%$#_{}]")


def csv_text(columns: Mapping[str, NDArray[Any]]) -> str:
    """A line of names and a line per row; what does not exist is empty, and numbers are written in full."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(zip(*([_csv_cell(value) for value in column.tolist()] for column in columns.values()), strict=True))
    return text.getvalue()


def json_text(title: str, units: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    document = {"fairlead": KIND, "title": title, "units": dict(units), "rows": list(rows)}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def latex_text(
    columns: Mapping[str, NDArray[Any]],
    units: Mapping[str, str],
    spread: Mapping[str, FloatArray],
    best: Mapping[str, BoolArray],
) -> str:
    r"""A tabular with \toprule, \midrule and \bottomrule; words are aligned left, numbers right."""
    numeric = {name: np.issubdtype(column.dtype, np.number) for name, column in columns.items()}
    shape = "".join("r" if numeric[name] else "l" for name in columns)
    lines = [rf"\begin{{tabular}}{{{shape}}}", r"\toprule"]
    lines += [" & ".join(map(latex_word, columns)) + r" \\", r"\midrule"]
    for row in range(len(next(iter(columns.values()), ()))):
        cells = []
        for name, column in columns.items():
            unit = units.get(name, "")
            cell = latex_word(shown(column[row], unit))
            if name in spread and np.isfinite(spread[name][row]):
                cell += rf" $\pm$ {latex_word(shown(spread[name][row], unit))}"
            cells.append(rf"\textbf{{{cell}}}" if name in best and best[name][row] else cell)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex_word(text: str) -> str:
    """The text with the characters escaped that LaTeX would obey."""
    return _ESCAPED.sub(lambda match: _LATEX.get(match[0], "\\" + match[0]), text)


def shown(value: Any, unit: str) -> str:
    """The value with its unit, rounded for reading."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    number = float(value)
    if not np.isfinite(number):
        return "-"
    if unit == "s":
        return format_duration(number)
    if unit == "part":
        return f"{number:.1%}"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    return f"{format_number(number)} ms" if unit == "ms" else format_number(number)


def _csv_cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else repr(value)
    return str(value)
