"""Pages from templates: the environment with its filters, what every page shows, errors, and the files beside them."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from fairlead import __version__
from fairlead.model.public_job import ENDED_PHASES
from fairlead.model.quota_text import quotas_text
from fairlead.model.units import format_bytes, format_duration, format_number
from fairlead.model.words import counted
from fairlead.service.api.access import scope_of
from fairlead.service.api.context import ServiceContext
from fairlead.service.store.tokens import Token
from fairlead.service.web.cell_markup import cell
from fairlead.service.web.packing import join_parts, pack, pack_part
from fairlead.service.web.page_cache import PageCache, SharedPage
from fairlead.service.web.rights import may, rights_only
from fairlead.studies.look.files import STYLE, TABLES, look_file
from fairlead.studies.look.glossary import TERMS, explained

_HTML = "text/html"
_WORTH_PACKING = 1400  # bytes, about those of one packet
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
WATCHED_ONLY, RUN_ONLY = frozenset({"/shadow"}), frozenset({"/what-if"})  # in which kind of service a page is of use
# Pages in the order of the menu.
MENU = (
    ("/", "Cluster"),
    ("/queue", "Queue"),
    ("/tenants", "Tenants"),
    ("/decisions", "Decisions"),
    ("/shadow", "Slurm"),
    ("/what-if", "What if"),
    ("/admin", "Admin"),
)


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("fairlead.service.web"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters.update(
        duration=duration,
        bytes=format_bytes,
        explained=explained,
        number=format_number,
        cell=cell,
        clock=clock,
        moment=moment,
        percent=percent,
        short=short,
        whole=whole,
        counted=counted,
        quotas=quotas_text,
    )
    made.globals.update(asset=asset, version=__version__, ended=ENDED_PHASES, terms=TERMS)
    return made


def show(request: Request, template: str, code: int = 200, **values: Any) -> Response:
    """A page for the user of this request."""
    service: ServiceContext = request.app.state.service
    text = _render(service, request.state.token, request.url.path, template, user=request.state.token, **values)
    return packed(request, text.encode(), _HTML, code)


async def show_shared(request: Request, template: str, build: Callable[..., dict[str, Any]], *query: Any) -> Response:
    """A page that all users with the same rights share, apart from the part that names the user.

    `build(service, reader, *query)` returns the values of the template. It gets the rights of the user as a token
    without a name and an id, so that the page cannot depend on more than its key in the cache has.
    """
    service: ServiceContext = request.app.state.service
    token: Token = request.state.token
    reader, path = rights_only(token), request.url.path

    def render() -> SharedPage:
        mark = secrets.token_hex(16)  # of this rendering only: no job can have it in its name
        text = _render(service, reader, path, template, user_mark=mark, **build(service, reader, *query))
        before, after = text.encode().split(mark.encode())
        return SharedPage(pack_part(before), pack_part(after, last=True))

    cache: PageCache = request.app.state.pages
    page = await cache.page((build, reader.role, reader.tenant, path, query), render)
    own = environment().get_template("user.html.j2").render(user=token).encode()
    headers = {"Vary": "Accept-Encoding"}
    if not _reads_gzip(request):
        return Response(page.before.plain + own + page.after.plain, 200, headers, media_type=_HTML)
    headers["Content-Encoding"] = "gzip"
    return Response(join_parts(page.before, pack_part(own), page.after), 200, headers, media_type=_HTML)


def _render(service: ServiceContext, token: Token | None, path: str, template: str, **values: Any) -> str:
    """The text of a page for the rights of this token."""
    useless = RUN_ONLY if service.only_watches else WATCHED_ONLY

    def can(method: str, page: str) -> bool:
        return token is not None and may(token, (method, page), service.only_watches)

    return (
        environment()
        .get_template(template)
        .render(
            path=path,
            scope=None if token is None else scope_of(token),
            menu=[(place, title) for place, title in MENU if place not in useless and can("GET", place)],
            can=can,
            watches=service.only_watches,
            now_s=service.reads.now_s(),
            **values,
        )
    )


def packed(
    request: Request, content: bytes, kind: str, code: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """The response, compressed where the browser can read that. Pages contain no secrets that their size could betray."""
    headers = {"Vary": "Accept-Encoding", **(headers or {})}
    if len(content) >= _WORTH_PACKING and _reads_gzip(request):
        content, headers["Content-Encoding"] = pack(content), "gzip"
    return Response(content, code, headers, media_type=kind)


def _reads_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def show_error(request: Request, status: int, message: str, remedy: str | None) -> Response:
    return show(request, "error.html.j2", status, title="Not possible", message=message, remedy=remedy)


# ---- files ----------------------------------------------------------------------------------------------------------


@cache
def _static_files() -> dict[str, tuple[bytes, str]]:
    folder = files("fairlead.service.web").joinpath("static")
    kinds = [(item, KINDS.get(f".{item.name.rpartition('.')[2]}")) for item in folder.iterdir()]
    own = {item.name: (item.read_bytes(), kind) for item, kind in kinds if kind is not None}
    return {
        **own,
        STYLE: (look_file(STYLE).encode(), KINDS[".css"]),
        TABLES: (look_file(TABLES).encode(), KINDS[".js"]),
    }


def static_file(name: str) -> tuple[bytes, str] | None:
    """The content and the media type of a file beside the pages; None if there is none of this name."""
    return _static_files().get(name)  # strangers choose the name: only files that exist are remembered


@cache
def asset(name: str) -> str:
    """The address of such a file, which changes with its content, so that browsers may keep it."""
    found = static_file(name)
    assert found is not None, f"{name} is not a file of the dashboard"
    return f"/static/{name}?v={hashlib.sha256(found[0]).hexdigest()[:12]}"


# ---- filters --------------------------------------------------------------------------------------------------------


def clock(time_s: float | None) -> str:
    """A time by the clock of UTC: the script of the page shows it in the reader's own time zone."""
    return "-" if time_s is None else datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def moment(time_s: float | None) -> str:
    """A time for machines."""
    return "" if time_s is None else datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds")


def duration(seconds: float | None) -> str:
    """A duration to be read at a glance, where the command line would write 0.0214s or 31.4s."""
    if seconds is None or not 0 < seconds < 59.5:
        return format_duration(seconds)
    return f"{1000 * seconds:.0f} ms" if seconds < 0.9995 else f"{seconds:.2g}s"


def short(value: float | None) -> str:
    """A number to be read at a glance: tiny ones only as such. Cells that are saved as CSV also have the whole of it."""
    return "< 0.01" if value is not None and 0 < value < 0.01 else format_number(value)


def whole(value: float) -> str:
    return f"{math.floor(value):,}"


def percent(part: float | None) -> str:
    """A part of 1 in per cent; never 100 % before the end."""
    return "-" if part is None else f"{100 if part >= 1 else math.floor(100 * part)} %"
