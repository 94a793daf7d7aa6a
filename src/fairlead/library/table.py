"""A table of results: named columns with units, for notebooks, other libraries of tables, and papers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.library.table_text import csv_text, json_text, latex_text, shown
from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.words import did_you_mean
from fairlead.traces.files import create_text

Column = NDArray[Any]
SHOWN_ROWS = 60  # in a notebook


@dataclass(frozen=True, eq=False)
class ResultTable:
    """Columns of equal length by name. Numbers that do not exist are NaN.

    `units` are s, ms, GPUs, GPU-hours, ratio, part (of 1) or count, by column. A column of means over seeds may have a
    `spread` (standard deviations), and `best` marks the cells in which a paired test found the policy best.
    """

    title: str
    columns: Mapping[str, Column]
    units: Mapping[str, str] = field(default_factory=dict)
    spread: Mapping[str, FloatArray] = field(default_factory=dict)
    best: Mapping[str, BoolArray] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Column:
        if name not in self.columns:
            raise InputError(f'the table has no column "{name}"; {did_you_mean(name, self.columns)}')
        return self.columns[name]

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows as dicts of plain Python values, with None instead of NaN."""
        for values in zip(*(_plain(column) for column in self.columns.values()), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def select(self, *names: str) -> ResultTable:
        """The table with only these columns, in this order."""
        return replace(self, columns={name: self[name] for name in names})

    def where(self, **equal: object) -> ResultTable:
        """The rows in which each named column has this value: `runs.where(policy="fft", seed=0)`."""
        kept = np.ones(len(self), dtype=bool)
        for name, value in equal.items():
            kept &= self[name] == value
        return self._rows_at(np.flatnonzero(kept))

    def sorted_by(self, name: str, *, descending: bool = False) -> ResultTable:
        """The rows in the order of a column; equal ones stay in their order."""
        column = self[name]
        order = np.argsort(-column if descending else column, kind="stable")
        return self._rows_at(order)

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns as plain lists, with None instead of NaN."""
        return {name: _plain(column) for name, column in self.columns.items()}

    def to_pandas(self) -> Any:
        """A pandas.DataFrame."""
        return _needs("pandas", "to_pandas").DataFrame(dict(self.columns))

    def to_polars(self) -> Any:
        """A polars.DataFrame."""
        return _needs("polars", "to_polars").DataFrame(self.to_dict())

    def to_arrow(self) -> Any:
        """A pyarrow.Table, with the unit of each column in the metadata of its field."""
        arrow = _needs("pyarrow", "to_arrow")
        table = arrow.table(self.to_dict())
        units = [{"unit": self.units[name]} if name in self.units else None for name in self.columns]
        fields = [one.with_metadata(unit) for one, unit in zip(table.schema, units, strict=True)]
        return table.cast(arrow.schema(fields, metadata={"title": self.title}))

    def to_csv(self, path: str | None = None) -> str:
        """The table as CSV with a plain line of column names; also written to the file, if one is named."""
        return _written(csv_text(self.columns), path)

    def to_json(self, path: str | None = None) -> str:
        """The table as one JSON object: title, units and rows; also written to the file, if one is named."""
        return _written(json_text(self.title, self.units, list(self.rows())), path)

    def to_latex(self, path: str | None = None, columns: Sequence[str] | None = None) -> str:
        """A `tabular` for the LaTeX package booktabs, with the best in bold; also written to the file, if one is named."""
        table = self if columns is None else self.select(*columns)
        return _written(latex_text(table.columns, self.units, self.spread, self.best), path)

    def to_parquet(self, path: str) -> None:
        """Write a Parquet file, which needs the package pyarrow."""
        _needs("pyarrow.parquet", "to_parquet").write_table(self.to_arrow(), path)

    def __repr__(self) -> str:
        return f"<Table {self.title!r}: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """The table for a notebook."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        lines = ["".join(self._cell(name, row) for name in self.columns) for row in range(min(len(self), SHOWN_ROWS))]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        more = f"<p>... and {len(self) - SHOWN_ROWS:,} more rows</p>" if len(self) > SHOWN_ROWS else ""
        caption = f"<caption>{escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def _cell(self, name: str, row: int) -> str:
        text = escape(shown(self.columns[name][row], self.units.get(name, "")))
        if name in self.spread and np.isfinite(self.spread[name][row]):
            text += f" ±{escape(shown(self.spread[name][row], self.units.get(name, '')))}"
        return f"<td><b>{text}</b></td>" if name in self.best and self.best[name][row] else f"<td>{text}</td>"

    def _rows_at(self, rows: NDArray[np.intp]) -> ResultTable:
        return replace(
            self,
            columns={name: column[rows] for name, column in self.columns.items()},
            spread={name: column[rows] for name, column in self.spread.items()},
            best={name: column[rows] for name, column in self.best.items()},
        )


def table_of(
    title: str, rows: Sequence[Mapping[str, Any]], units: Mapping[str, str], names: Sequence[str]
) -> ResultTable:
    """The table of these rows; a number that is None becomes NaN."""
    return ResultTable(title, {name: column_of([row[name] for row in rows]) for name in names}, units)


def column_of(values: Sequence[Any]) -> Column:
    """The values as an array: whole numbers, numbers with NaN for None, or words."""
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else value for value in values], dtype=object)
    if values and all(isinstance(value, bool | np.bool_) for value in values):
        return np.array(values, dtype=bool)
    if values and all(isinstance(value, int | np.integer) for value in values):
        return np.array(values, dtype=np.int64)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _plain(column: Column) -> list[Any]:
    values: list[Any] = column.tolist()
    return [None if isinstance(value, float) and value != value else value for value in values]


def _written(text: str, path: str | None) -> str:
    if path is not None:
        with create_text(path) as file:
            file.write(text)
    return text


def _needs(module: str, method: str) -> Any:
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError:
        raise FairleadError(
            f"Table.{method} needs the package {package}, which is not installed; run `pip install {package}`, or use "
            "Table.to_dict or Table.to_csv"
        ) from None
