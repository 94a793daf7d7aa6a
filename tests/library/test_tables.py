"""Tables of results: plain columns that other libraries, files and papers take."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import fairlead
from fairlead import Table
from fairlead.library.table import table_of
from fairlead.model.errors import FairleadError, InputError

TABLE = Table(
    "small & <b>",
    {
        "policy": np.array(["a_b", "c"], dtype=object),
        "jobs": np.array([1200, 3]),
        "jct_s": np.array([3600.0, np.nan]),
        "used": np.array([0.25, 1.0]),
    },
    {"jct_s": "s", "used": "part"},
    spread={"jct_s": np.array([60.0, np.nan])},
    best={"used": np.array([False, True])},
)


def test_columns_are_arrays_by_name() -> None:
    assert TABLE.names == ["policy", "jobs", "jct_s", "used"]
    assert len(TABLE) == 2
    assert TABLE["jobs"].sum() == 1203
    with pytest.raises(InputError, match='no column "job"; did you mean "jobs"'):
        TABLE["job"]


def test_rows_are_plain_values_and_nan_is_none() -> None:
    assert list(TABLE.rows())[1] == {"policy": "c", "jobs": 3, "jct_s": None, "used": 1.0}
    assert TABLE.to_dict()["jct_s"] == [3600.0, None]
    assert all(type(value) in (str, int, float, type(None)) for row in TABLE.rows() for value in row.values())


def test_rows_are_selected_and_sorted_with_their_marks() -> None:
    last = TABLE.where(policy="c").select("policy", "used")

    assert last.to_dict() == {"policy": ["c"], "used": [1.0]}
    assert last.best["used"].tolist() == [True]
    assert TABLE.sorted_by("jobs")["policy"].tolist() == ["c", "a_b"]
    assert TABLE.sorted_by("used", descending=True).best["used"].tolist() == [True, False]


def test_none_becomes_nan_in_numbers_and_empty_in_words() -> None:
    table = table_of("t", [{"a": 1, "b": None, "c": "x"}, {"a": 2, "b": 0.5, "c": None}], {}, ["a", "b", "c"])

    assert table["a"].dtype == np.int64
    assert np.isnan(table["b"][0])
    assert table["c"].tolist() == ["x", ""]


def test_csv_has_a_plain_header_and_numbers_in_full(tmp_path: Path) -> None:
    text = TABLE.to_csv(str(tmp_path / "t.csv"))

    assert (tmp_path / "t.csv").read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows[0] == {"policy": "a_b", "jobs": "1200", "jct_s": "3600.0", "used": "0.25"}
    assert rows[1]["jct_s"] == ""


def test_json_has_units_and_rows_without_nan() -> None:
    document = json.loads(TABLE.to_json(), parse_constant=lambda word: pytest.fail(word))

    assert document["units"] == {"jct_s": "s", "used": "part"}
    assert document["rows"] == list(TABLE.rows())


def test_latex_is_a_booktabs_table_with_the_best_in_bold() -> None:
    assert TABLE.to_latex().splitlines() == [
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"policy & jobs & jct\_s & used \\",
        r"\midrule",
        r"a\_b & 1,200 & 1h 00m $\pm$ 1m 00s & 25.0\% \\",
        r"c & 3 & - & \textbf{100.0\%} \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert TABLE.to_latex(columns=["policy", "used"]).splitlines()[2] == r"policy & used \\"


def test_html_shows_units_marks_and_no_markup_of_others() -> None:
    shown = TABLE._repr_html_()

    assert "<caption>small &amp; &lt;b&gt;</caption>" in shown
    assert "<td>1h 00m ±1m 00s</td>" in shown
    assert "<td><b>100.0%</b></td>" in shown


def test_a_long_table_says_how_much_is_not_shown() -> None:
    assert "... and 40 more rows" in Table("t", {"n": np.arange(100)})._repr_html_()


@pytest.mark.parametrize(
    ("method", "package"), [("to_pandas", "pandas"), ("to_polars", "polars"), ("to_arrow", "pyarrow")]
)
def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, method: str, package: str) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)  # as if it were not installed

    with pytest.raises(FairleadError, match=f"needs the package {package}, which is not installed; run `pip install"):
        getattr(TABLE, method)()


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(__import__("sys").modules, module, None)

    with pytest.raises(FairleadError, match=r"Table.to_parquet needs the package pyarrow"):
        TABLE.to_parquet(str(tmp_path / "t.parquet"))


def test_pandas_gets_the_columns() -> None:
    frame = pytest.importorskip("pandas") and TABLE.to_pandas()

    assert list(frame.columns) == TABLE.names
    assert frame["jct_s"].isna().tolist() == [False, True]


def test_polars_gets_the_columns_and_missing_values() -> None:
    frame = pytest.importorskip("polars") and TABLE.to_polars()

    assert frame.columns == TABLE.names
    assert frame["jct_s"].to_list() == [3600.0, None]


def test_arrow_and_parquet_keep_units(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "t.parquet")
    TABLE.to_parquet(path)

    table = parquet.read_table(path)
    assert table.to_pydict() == TABLE.to_dict()
    assert table.schema.field("jct_s").metadata == {b"unit": b"s"}


def test_parquet_of_a_comparison_is_read_back_by_polars_and_pandas(tmp_path: Path) -> None:
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    generate, path = {"tenants": 2}, str(tmp_path / "runs.parquet")
    compared = fairlead.compare(
        "v100:2,k80:2", "fifo,las", generate=generate, jobs=6, seeds="0..1", workers=1, state=tmp_path / "state"
    )

    compared.runs.to_parquet(path)

    for frame in (polars.read_parquet(path).to_dicts(), pandas.read_parquet(path).to_dict("records")):
        assert [(row["policy"], row["seed"]) for row in frame] == [("fifo", 0), ("las", 0), ("fifo", 1), ("las", 1)]
        assert [row["jct_mean_s"] for row in frame] == compared.runs["jct_mean_s"].tolist()
