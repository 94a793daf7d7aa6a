"""The page in a real browser, and the figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fairlead.cli.main import main
from fairlead.studies.report.style import COLOURS, KNOWN, styles_of, tenant_colours
from waiting import PATIENCE_MS

CHROMIUM = "/usr/bin/chromium"
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SWITCHES += ["--disable-sync", "--no-first-run"]
LARGEST_PAGE = 1_000_000  # bytes; most of them are the numbers of the charts
NASTY = "</script><b>R&D</b>"  # a tenant's name
BAD = """
from fairlead.model.allocation import Level
from fairlead.policies.policy import Policy

def allocate(view, memory):
    raise ValueError("<i>no</i> idea")

mine = Policy("<u>bad</u>", "Fails.", "made up", Level.GRANTS, allocate)
"""


@dataclass
class Made:
    answer: dict[str, Any]
    page: Path
    figures: Path


def call(*args: str) -> None:
    sys.argv = ["fairlead", *args]
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A comparison with two loads, six seeds, hidden server speeds, a failing policy, and a tenant named like a tag."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "bad.py").write_text(BAD, encoding="utf-8")
    rows = "".join(
        f"j{i},{(NASTY, 'vision', 'speech')[i % 3]},resnet50,{i * 400},{1 + i % 2},{40000 + 3000 * (i % 7)}\n"
        for i in range(24)
    )
    (folder / "jobs.csv").write_text("id,tenant,model,arrival_s,gpus,steps\n" + rows, encoding="utf-8")
    args = [
        "compare",
        "--cluster",
        "v100:2,k80:2x2",
        "--trace",
        str(folder / "jobs.csv"),
        "--server-factors",
        "0.8:1.1",
    ]
    args += ["--policies", f"fifo,las,srtf,{folder / 'bad.py'}:mine", "--seeds", "0..5", "--loads", "0.5,2"]
    args += [
        "--state",
        str(folder / "state"),
        "--report",
        str(folder / "page.html"),
        "--figures",
        str(folder / "figures"),
    ]
    with pytest.MonkeyPatch.context() as patch, (folder / "out.json").open("w", encoding="utf-8") as out:
        patch.setattr(sys, "stdout", out)
        call(*args, "-o", "json")
    answer = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    return Made(answer, folder / "page.html", folder / "figures")


@pytest.fixture(scope="module")
def opened(made: Made) -> Iterator[tuple[Any, list[str], list[str]]]:
    """The page, the browser's warnings and errors, and its requests."""
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no browser at {CHROMIUM}; install Debian's chromium to run this")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    complaints: list[str] = []
    asked: list[str] = []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES, timeout=PATIENCE_MS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(made.page.as_uri())
        page.wait_for_selector("body[data-drawn=yes]")
        yield page, complaints, asked
        browser.close()


CHARTS = "[...document.querySelectorAll('.picture')]"


def resize(page: Any, width: int) -> None:
    """Returns once the page has drawn every chart at its new width."""
    page.set_viewport_size({"width": width, "height": 900})
    drawn = "Number(c.querySelector('.drawn').getAttribute('width')) === c.clientWidth"
    page.wait_for_function(f"innerWidth === {width} && {CHARTS}.every(c => {drawn})")


def downloaded(page: Any, button: str) -> tuple[str, str]:
    """The name and the text of the file that a click on the button saves."""
    with page.expect_download() as saved:
        page.click(button)
    return saved.value.suggested_filename, Path(saved.value.path()).read_text(encoding="utf-8")


def test_the_browser_has_nothing_to_complain_about_and_asks_for_nothing(
    made: Made, opened: tuple[Any, list[str], list[str]]
) -> None:
    _, complaints, asked = opened

    assert complaints == []
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [made.page.as_uri()]


@pytest.mark.parametrize(
    ("chart", "marks", "least"),
    [
        ("frontier", ".point", 3),
        ("cdf-jct_s", ".line", 3),
        ("cdf-ftf", ".line", 3),
        ("cdf-latency_ratio", ".line", 3),
        ("utilisation", ".line", 6),
        ("fragmentation", ".line", 3),
        ("tenants", ".line", 6),
        ("gantt", ".point", 10),
        ("migrations", ".point", 3),
        ("decisions", ".point", 3),
    ],
)
def test_every_chart_is_drawn(opened: tuple[Any, list[str], list[str]], chart: str, marks: str, least: int) -> None:
    page, _, _ = opened

    assert page.locator(f"#{chart} .drawn {marks}").count() >= least
    assert "NaN" not in page.locator(f"#{chart} .drawn").inner_html()


def test_the_numbers_on_the_page_are_those_of_the_json(made: Made, opened: tuple[Any, list[str], list[str]]) -> None:
    page, _, _ = opened
    inside = page.evaluate("JSON.parse(document.getElementById('numbers').textContent)")
    printed = {key: value for key, value in made.answer.items() if key != "files"}

    assert inside == printed
    for k, load in enumerate(made.answer["loads"]):
        cells = page.eval_on_selector_all(
            f"table.headline[data-load='{k}'] td[data-metric]",
            "cells => cells.map(c => [c.dataset.policy, c.dataset.metric, Number(c.dataset.value), c.className, c.firstChild.textContent])",
        )
        rows = {row["policy"]: row["metrics"] for row in made.answer["rows"] if row["load"] == load and row["runs"]}
        assert len(cells) == sum(map(len, rows.values())) > 0
        for policy, metric, value, looks, text in cells:
            assert value == rows[policy][metric]["mean"]
            assert ("best" in looks.split()) == rows[policy][metric]["best"]
            if metric == "ftf_mean":
                assert text == f"{value:.3g}"


def test_a_failure_is_in_the_table_with_its_reason(opened: tuple[Any, list[str], list[str]]) -> None:
    page, _, _ = opened

    shown = page.locator("#headline td.failed").first.inner_text()

    assert "ValueError: <i>no</i> idea" in shown
    assert page.locator("u").count() == page.locator("main i").count() == 0  # names are text, never tags


def test_the_page_shows_what_each_policy_knew_and_what_was_assumed(
    made: Made, opened: tuple[Any, list[str], list[str]]
) -> None:
    page, _, _ = opened

    rows = page.locator("table.knows tbody tr").all_inner_texts()
    assert [row.split("\t")[2] for row in rows] == ["no", "no", "yes", "no"]
    assert page.locator("#assumptions li").all_inner_texts() == made.answer["assumptions"]


def test_another_load_and_another_policy_can_be_chosen(opened: tuple[Any, list[str], list[str]]) -> None:
    page, complaints, _ = opened
    fifo = "document.querySelector('#frontier .point title').textContent.match(/JCT ([0-9.]+) h/)[1]"
    faster = float(page.evaluate(fifo))

    page.select_option("#load", "0")
    page.select_option("#tenants-policy", "las")
    page.select_option("#gantt-policy", "srtf")

    assert float(page.evaluate(fifo)) < faster
    assert NASTY in page.locator("#tenants .drawn .title").all_text_contents()
    assert complaints == []


def test_the_title_says_what_was_compared_on_what(opened: tuple[Any, list[str], list[str]]) -> None:
    page, _, _ = opened

    shown = "jobs: 24 jobs of 3 tenants on 2 v100, 2 k80"
    assert page.title() == page.locator("h1").inner_text() == shown


@pytest.mark.parametrize("width", [1920, 1280, 800, 390])
def test_the_page_never_scrolls_sideways(opened: tuple[Any, list[str], list[str]], width: int) -> None:
    """A wide table scrolls in a region of its own, which the keyboard reaches."""
    page, _, _ = opened
    resize(page, width)

    needed, had = page.evaluate("(e => [e.scrollWidth, e.clientWidth])(document.documentElement)")
    regions = page.evaluate("[...document.querySelectorAll('.scroll')].map(e => e.tabIndex)")
    left, right = page.evaluate(
        "(e => [e.left, innerWidth - e.right])(document.querySelector('main').getBoundingClientRect())"
    )
    bar = page.evaluate("document.querySelector('.bar').offsetWidth")

    resize(page, 1280)
    assert needed <= had
    assert (abs(left - right) <= 1, bar) == (True, width)  # in the middle, below a bar from edge to edge
    assert len(regions) > 3
    assert set(regions) == {0}


def test_tables_are_sorted_hidden_and_downloaded(made: Made, opened: tuple[Any, list[str], list[str]]) -> None:
    page, complaints, _ = opened
    table = "table.headline[data-load='0']"

    def policies() -> list[str]:
        names: list[str] = page.eval_on_selector_all(f"{table} tbody th", "all => all.map(e => e.dataset.value)")
        return names

    def means() -> list[float]:
        cells: list[float] = page.eval_on_selector_all(
            f"{table} td[data-metric=jct_mean]", "all => all.map(e => Number(e.dataset.value))"
        )
        return cells

    before = policies()
    page.click(f"{table} thead th:nth-child(2) .sort")
    up = means()
    page.click(f"{table} thead th:nth-child(2) .sort")
    down = means()
    page.click(f"{table} thead th:nth-child(1) .sort")
    by_name = policies()
    name, text = downloaded(page, "#headline .tools button >> nth=0")
    page.click("#headline .tools summary >> nth=0")
    page.uncheck("#headline .tools input >> nth=0")
    hidden = page.locator(f"{table} td[data-metric=jct_mean]").first.is_visible()
    page.check("#headline .tools input >> nth=0")

    assert up == sorted(means()) == down[::-1]
    assert sorted(by_name) == sorted(before)
    assert name == "headline-numbers-load-0.5.csv"
    lines = text.splitlines()
    assert lines[0].startswith('Policy,"mean JCT, s"')
    assert len(lines) == 1 + len(before)
    assert not hidden
    assert complaints == []


def test_charts_hide_what_is_clicked_in_the_legend_and_are_downloaded_whole(
    opened: tuple[Any, list[str], list[str]],
) -> None:
    page, _, _ = opened
    before = page.locator("#cdf-ftf .drawn .line").count()

    page.click("#cdf-ftf .key >> nth=0")
    hidden = page.locator("#cdf-ftf .drawn .line").count()
    page.click("#cdf-ftf .key >> nth=0")
    name, text = downloaded(page, "#cdf-ftf .tools button")

    assert (hidden, page.locator("#cdf-ftf .drawn .line").count()) == (before - 1, before)
    assert name == "cdf-ftf.svg"
    assert "var(" not in text
    assert (
        len(ElementTree.fromstring(text).findall(".//{http://www.w3.org/2000/svg}path[@class='mark line']")) == before
    )


def test_a_marked_range_is_enlarged_until_a_double_click(opened: tuple[Any, list[str], list[str]]) -> None:
    page, _, _ = opened
    ticks = "[...document.querySelectorAll('#fragmentation .xtick')].map(e => e.textContent)"
    page.locator("#fragmentation").scroll_into_view_if_needed()
    before, box = page.evaluate(ticks), page.locator("#fragmentation .pane").bounding_box()

    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 20)
    page.mouse.up()
    enlarged = page.evaluate(ticks)
    page.mouse.dblclick(box["x"] + 20, box["y"] + 20)

    assert enlarged != before
    assert page.evaluate(ticks) == before


def test_abbreviations_are_explained_on_hover_and_in_the_glossary(opened: tuple[Any, list[str], list[str]]) -> None:
    page, _, _ = opened
    meant = dict(page.eval_on_selector_all("abbr", "all => all.map(e => [e.textContent.toLowerCase(), e.title])"))
    listed = page.eval_on_selector_all(".glossary dt", "all => all.map(e => e.textContent.toLowerCase())")

    assert {"jct", "ftf", "sharing incentive", "envy"} <= set(meant) <= set(listed)
    assert all(meant.values())


def test_a_page_is_small_because_it_brings_no_plotting_library(made: Made) -> None:
    assert made.page.stat().st_size < LARGEST_PAGE


@pytest.mark.parametrize("width", [1280, 800])
def test_names_in_the_frontier_are_inside_and_do_not_overlap(
    opened: tuple[Any, list[str], list[str]], width: int
) -> None:
    page, _, _ = opened
    resize(page, width)

    corners = "e => { const b = e.getBoundingClientRect(); return [b.left, b.right, b.top, b.bottom]; }"
    names = page.evaluate(f"[...document.querySelectorAll('#frontier .drawn .name')].map({corners})")
    plot = page.evaluate(f"({corners})(document.querySelector('#frontier .pane'))")
    ticks = [page.locator(f"#frontier .{axis}tick").count() for axis in "xy"]

    resize(page, 1280)
    assert len(names) == 3
    assert all(a[0] >= plot[0] and a[1] <= plot[1] and a[2] >= plot[2] and a[3] <= plot[3] for a in names)
    assert not [
        (a, b) for a, b in combinations(names, 2) if a[0] < b[1] and b[0] < a[1] and a[2] + 2 < b[3] and b[2] + 2 < a[3]
    ]
    assert min(ticks) >= 3


def test_charts_keep_their_height_however_often_the_window_changes(opened: tuple[Any, list[str], list[str]]) -> None:
    page, _, _ = opened
    heights = f"{CHARTS}.map(chart => chart.querySelector('.drawn').getBoundingClientRect().height)"
    before = page.evaluate(heights)

    for width in (800, 1280, 800, 1280):
        resize(page, width)

    assert page.evaluate(heights) == before
    assert min(before) > 100


def test_figures_are_vector_graphics_with_a_png_each(made: Made) -> None:
    names = sorted(path.name for path in made.figures.iterdir())

    stems = {name.rsplit(".", 1)[0] for name in names}
    assert {f"{stem}.{kind}" for stem in stems for kind in ("pdf", "png")} == set(names)
    assert {
        "frontier-load-2",
        "distributions-load-0.5",
        "utilisation-load-2",
        "gantt-las",
        "tenants-srtf-load-2",
    } <= stems
    for path in made.figures.glob("*.pdf"):
        text = path.read_bytes()
        assert text.startswith(b"%PDF")
        assert b"/Subtype /Image" not in text
        assert b"/Title (jobs: 24 jobs of 3 tenants on 2 v100, 2 k80)" in text


def test_a_policy_looks_the_same_everywhere_and_like_no_other() -> None:
    assert len({(s.colour, s.dash) for s in KNOWN.values()}) == len(KNOWN)
    assert styles_of(list(KNOWN)) == KNOWN
    assert len(set(tenant_colours([f"t{i}" for i in range(8)]).values())) == 8


def test_a_policy_of_ones_own_takes_a_colour_that_is_free() -> None:
    own = [f"mine-{i}" for i in range(5)]
    names = [*own[:3], "fft", "gavel", "fifo", "oef-coop", *own[3:]]

    styles = styles_of(names)

    assert styles == styles_of(names)
    assert {name: styles[name] for name in names if name in KNOWN} == {name: KNOWN[name] for name in names[3:7]}
    assert {style.colour for style in styles.values()} == set(COLOURS)  # nine policies, nine colours
    crowd = styles_of([*KNOWN, *own])
    assert len({(style.colour, style.dash) for style in crowd.values()}) == len(crowd)
