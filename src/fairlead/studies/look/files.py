"""The files of the look. The dashboard serves them; a page of a finished run has them inside, so that it is one file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

STYLE, TABLES, CHARTS = "fairlead.css", "tables.js", "charts.js"


@cache
def look_file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
