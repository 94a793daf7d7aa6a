"""Markdown becomes static pages: rendered by markdown-it, framed by one template, with links that work as files."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from jinja2 import Environment, FileSystemLoader
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from book.contents import GENERATED, PARTS, START

ROOT = Path(__file__).parents[1]
DASHBOARD_CSS = ROOT / "src" / "fairlead" / "studies" / "look" / "fairlead.css"
_OUTSIDE = re.compile(r"[a-z]+:|//")


@dataclass(frozen=True)
class Page:
    """A rendered page. `source` is the path of its Markdown in the repository, `address` that of the page in the site."""

    source: str
    address: str
    title: str
    body: str
    headings: tuple[tuple[str, str], ...]  # anchor and words of the second level


def build_site(folder: Path) -> list[Page]:
    """Write the whole site to a folder, which is emptied first, and return its pages."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    addresses = {source: _address(source) for source in _sources()}
    files: set[str] = set()
    pages = [_render(source, addresses, files) for source in addresses]
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    template = environment.get_template("page.html.j2")
    by_source = {page.source: page for page in pages}
    for page in pages:
        target = folder / page.address
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(template.render(_frame(page, by_source)), encoding="utf-8")
    for file in sorted(files):
        target = folder / _copied(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file in GENERATED:
            target.write_text(_content(file), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / file, target)
    (folder / "book.css").write_text(_css(), encoding="utf-8")
    return pages


def _content(file: str) -> str:
    return GENERATED[file]() if file in GENERATED else (ROOT / file).read_text(encoding="utf-8")


def _sources() -> list[str]:
    """Every page, in the order of the book; decisions follow their index."""
    decisions = sorted(f"docs/decisions/{path.name}" for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    return [START, *(source for part in PARTS.values() for source in part), *decisions]


def _address(source: str) -> str:
    if source == START:
        return "index.html"
    inside = source.removeprefix("docs/")
    folder, name = PurePosixPath(inside).parent, PurePosixPath(inside).stem
    return str(folder / ("index.html" if name == "README" else f"{name.lower()}.html"))


def _copied(file: str) -> str:
    return file.removeprefix("docs/") if file.startswith("docs/images/") else f"files/{file}"


def _render(source: str, addresses: Mapping[str, str], files: set[str]) -> Page:
    text = _content(source)
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = markdown.parse(text)
    headings = _name_headings(tokens)
    for token in _all(tokens):
        for name in ("href", "src"):
            if name in token.attrs:
                token.attrSet(name, _target(str(token.attrs[name]), source, addresses, files))
    body = markdown.renderer.render(tokens, markdown.options, {})
    body = body.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    title = headings[0][2] if headings else source
    second = tuple((anchor, words) for level, anchor, words in headings if level == 2)
    return Page(source, addresses[source], title, body, second)


def _all(tokens: Iterable[Token]) -> Iterable[Token]:
    for token in tokens:
        yield token
        yield from _all(token.children or ())


def _name_headings(tokens: list[Token]) -> list[tuple[int, str, str]]:
    """Give every heading an anchor as forges do, and return level, anchor and words."""
    seen: Counter[str] = Counter()
    headings: list[tuple[int, str, str]] = []
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            words = "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))
            anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            seen[anchor] += 1
            unique = anchor if seen[anchor] == 1 else f"{anchor}-{seen[anchor] - 1}"
            opening.attrSet("id", unique)
            headings.append((int(opening.tag[1]), unique, words))
    return headings


def _target(link: str, source: str, addresses: Mapping[str, str], files: set[str]) -> str:
    """A link of a Markdown file as a link between pages; a file that is no page is copied beside them."""
    path, sharp, anchor = link.partition("#")
    if not path or _OUTSIDE.match(link):
        return link
    wanted = normpath(str(PurePosixPath(source).parent / path))
    if (ROOT / wanted).is_dir():
        wanted = f"{wanted}/README.md"
    if wanted not in addresses:
        if wanted not in GENERATED and not (ROOT / wanted).is_file():
            raise FileNotFoundError(f"{source}: the link to {link} leads nowhere; correct it or remove it")
        files.add(wanted)
    there = addresses.get(wanted) or _copied(wanted)
    return relpath(there, str(PurePosixPath(addresses[source]).parent)) + sharp + anchor


def _frame(page: Page, pages: Mapping[str, Page]) -> dict[str, object]:
    """What the template shows around a page: the parts of the book, and the pages before and after it."""
    here = str(PurePosixPath(page.address).parent)
    order = [START, *(source for part in PARTS.values() for source in part)]
    at = order.index(page.source) if page.source in order else None

    def link(source: str) -> dict[str, object]:
        other = pages[source]
        return {"title": other.title, "href": relpath(other.address, here), "current": other is page}

    return {
        "page": page,
        "body": Markup(page.body),
        "root": relpath(".", here),
        "start": link(START),
        "parts": {name: [link(source) for source in sources] for name, sources in PARTS.items()},
        "before": link(order[at - 1]) if at else None,
        "after": link(order[at + 1]) if at is not None and at + 1 < len(order) else None,
    }


def _css() -> str:
    """The colours of the dashboard, which end before its first rule, and the style of the book."""
    colours = DASHBOARD_CSS.read_text(encoding="utf-8").partition("\n* {")[0]
    return colours + "\n" + (Path(__file__).parent / "book.css").read_text(encoding="utf-8")
