"""The book: every page is in its contents, its links lead somewhere, its pictures are current, and its commands run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

import prose

sys.path.insert(0, str(prose.ROOT))
from book.contents import GENERATED, PARTS
from book.pictures import FOLDER, PICTURES
from book.policy_pages import policy_page
from book.policy_pictures import JOBS, policy_picture
from book.policy_words import WORDS
from book.site import build_site

from fairlead.policies import REGISTRY

ABBREVIATION = re.compile(r"(?<![\w/.$`-])[A-Z][A-Z]{1,5}(?![\w`-])")
# Places in commands, words of shells, and names of models, products and conferences.
NAMES = {"DIR", "EXIT", "FILE", "NAME", "PIPE", "RANK", "STATE", "GPT", "OPT", "PAL", "RTX", "SC", "VGG"}
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (prose.ROOT / "docs").glob("*.md"))]


class Anchors(HTMLParser):
    """Links and ids of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.links += [str(values[name]) for name in ("href", "src") if values.get(name)]
        if values.get("id"):
            self.ids.add(str(values["id"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build_site(folder)
    return folder


def read(page: Path) -> Anchors:
    anchors = Anchors()
    anchors.feed(page.read_text(encoding="utf-8"))
    return anchors


def test_every_page_of_the_documentation_is_in_the_contents() -> None:
    listed = {source for part in PARTS.values() for source in part if source.startswith("docs/")}

    assert listed - {*GENERATED, "docs/decisions/README.md"} == {
        f"docs/{path.name}" for path in (prose.ROOT / "docs").glob("*.md")
    }


def test_every_link_leads_to_a_page_and_to_a_place_on_it(site: Path) -> None:
    pages = {page: read(page) for page in site.rglob("*.html")}
    broken: list[str] = []
    for page, anchors in pages.items():
        for link in anchors.links:
            if re.match(r"[a-z]+:", link):
                continue  # another site, or `data:`
            path, _, anchor = link.partition("#")
            target = (page.parent / unquote(path)).resolve() if path else page
            known = target.is_file() and (not anchor or anchor in pages[target].ids)
            broken += [] if known else [f"{page.relative_to(site)}: {link}"]

    assert not broken, "\n".join(broken)


def test_pages_need_nothing_from_other_sites(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(script|link|img|iframe)[^>]*(src|href)="(https?:)?//', text), page


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_current_and_has_words_for_those_who_cannot_see_it(name: str) -> None:
    drawn = PICTURES[name]()

    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == drawn, "run `make pictures`"
    assert ElementTree.fromstring(drawn).get("aria-label")


SHIPPED = frozenset(REGISTRY)  # other tests register policies of their own


def test_every_policy_has_words_for_its_page() -> None:
    assert WORDS.keys() == SHIPPED


@pytest.mark.parametrize("name", REGISTRY)
def test_the_page_of_a_policy_has_its_promises_formula_parameters_and_behaviour(name: str) -> None:
    page, drawn = policy_page(name), policy_picture(name)

    promises, use, limits, computes, parameters, paper = page.split("\n## ")[1:]
    assert all(str(promise) in promises for promise in REGISTRY[name].promises)
    assert (WORDS[name].when in use, WORDS[name].limits in limits) == (True, True)
    assert len(computes.split("```text")) > 1
    assert all(f"`{parameter}`" in parameters for parameter in REGISTRY[name].parameters)
    assert len(paper.splitlines()) > 2
    ends = re.findall(r"(\w+) (\d+)", drawn.split("each job ends: ")[1].partition("<")[0])
    assert {job for job, _ in ends} == {job for job, *_ in JOBS}  # all of them run to their end
    assert ElementTree.fromstring(drawn).get("aria-label")


def test_the_readme_is_short_and_leads_with_a_picture() -> None:
    lines = (prose.ROOT / "README.md").read_text(encoding="utf-8").splitlines()

    assert len(lines) < 120
    assert any(line.startswith("![") for line in lines[:10])


@pytest.mark.parametrize("name", PAGES)
def test_the_glossary_spells_out_every_abbreviation(name: str) -> None:
    glossary = (prose.ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    text = "\n".join(re.sub(r"`[^`]*`|\]\([^)]*\)", " ", line.text) for line in prose.markdown(prose.ROOT / name))
    spelt = set(re.findall(r"[A-Z]{2,}", glossary))

    assert set(ABBREVIATION.findall(text)) - spelt - NAMES == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["docs/start.md", "docs/guide-researcher.md"])
def test_the_commands_of_a_page_run(name: str, tmp_path: Path) -> None:
    text = (prose.ROOT / name).read_text(encoding="utf-8")
    script = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    (tmp_path / "script").write_text(script.replace("export PATH=$PWD/.venv/bin:$PATH\n", ""))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    done = subprocess.run(
        ["bash", "-euo", "pipefail", "script"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


def test_the_messages_of_the_page_about_trouble_exist() -> None:
    page = (prose.ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `(.*?)` \|", page, re.MULTILINE)
    source = " ".join(path.read_text(encoding="utf-8") for path in (prose.ROOT / "src").rglob("*.py"))
    joined = re.sub(r'"\s*f?"', "", source)

    assert len(messages) > 5
    for part in (part.strip() for message in messages for part in message.split("...") if part.strip()):
        assert part in joined, part
