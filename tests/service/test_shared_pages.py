"""Pages that readers share: one rendering for all with the same rights, and never a byte for anyone else."""

from __future__ import annotations

import asyncio
import gzip
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fairlead.service.store.tokens import Role
from fairlead.service.web import page_cache
from fairlead.service.web.live import Pulse
from fairlead.service.web.packing import join_parts, pack_part
from fairlead.service.web.page_cache import PageCache, SharedPage
from fairlead.service.web.site import build_site
from serving import World, listening, start, world
from waiting import PATIENCE_S

PLACES = (
    "/",
    "/queue",
    "/queue?show=all",
    "/queue?show=all&tenant=other",
    "/queue?q=secret&show=all",
    "/queue?order=newest&page=2",
    "/tenants",
    "/tenants?window=1h",
    "/decisions",
    "/decisions?before=1",
)
READERS: tuple[tuple[Role, str | None], ...] = (
    (Role.ADMIN, None),
    (Role.VIEWER, None),
    (Role.VIEWER, "own"),
    (Role.MEMBER, "own"),
    (Role.MEMBER, "other"),
)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        for name in ("secret-run", "secret-wait"):
            made.submit(name=name, tenant="other")
        made.submit(name="mine", tenant="own")
        made.take()
        start(made, "j1")
        yield made


class Site:
    """The pages of the service with a cache of their own."""

    def __init__(self, here: World, client: httpx.Client, cache: PageCache) -> None:
        self._here, self.client, self.cache = here, client, cache

    def sign_in(self, role: Role, tenant: str | None) -> str:
        """The cookie of a new session, of a new token."""
        token = self._here.token(role, tenant)["Authorization"].removeprefix("Bearer ")
        origin = str(self.client.base_url).rstrip("/")
        answer = self.client.post("/sign-in", data={"token": token}, headers={"Origin": origin})
        self.client.cookies.clear()
        return answer.headers["set-cookie"].partition(";")[0]

    def get(self, cookie: str, path: str, **headers: str) -> str:
        answer = self.client.get(path, headers={"Cookie": cookie, **headers})
        assert answer.status_code == 200
        return answer.text


@contextmanager
def opened(here: World) -> Iterator[Site]:
    site = build_site(here.service)
    with (
        listening(here.service, build=lambda _: site) as url,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as client,
    ):
        yield Site(here, client, site.pages.state.pages)


@pytest.fixture
def site(here: World) -> Iterator[Site]:
    with opened(here) as made:
        yield made


def timeless(text: str) -> str:
    """The text without ages and times, which differ between two moments."""
    return re.sub(r"(?<![\w-])\d[\d.:, -]*(ms|s|min|h|d|UTC)?", "#", text)


def test_every_reader_gets_the_same_page_with_and_without_other_readers(here: World, site: Site) -> None:
    cookies = {reader: site.sign_in(*reader) for reader in READERS}
    alone: dict[tuple[tuple[Role, str | None], str], str] = {}
    for reader in READERS:
        with opened(here) as own:
            cookie = own.sign_in(*reader)
            alone |= {(reader, path): timeless(own.get(cookie, path)) for path in PLACES}

    for order in (READERS, READERS[::-1]):
        for path in PLACES:
            for reader in order:
                assert timeless(site.get(cookies[reader], path)) == alone[reader, path], (reader, path)
    assert len({alone[reader, "/queue?show=all"] for reader in READERS}) == len(READERS)


def test_no_reader_gets_jobs_of_another_tenant_that_others_have_just_loaded(site: Site) -> None:
    everyone, confined = site.sign_in(Role.VIEWER, None), site.sign_in(Role.VIEWER, "own")

    for path in PLACES:
        site.get(everyone, path)
        text = site.get(confined, path)
        assert not re.search(r"secret-|\bj[12]\b", text.replace('value="secret"', "")), path
    assert "secret-run" in site.get(everyone, "/queue?show=all")


def test_readers_with_the_same_rights_share_a_rendering_under_their_own_names(here: World, site: Site) -> None:
    first, second = site.sign_in(Role.MEMBER, "own"), site.sign_in(Role.VIEWER, None)
    both = [site.sign_in(Role.VIEWER, None) for _ in range(5)]
    site.get(first, "/queue")
    site.get(second, "/queue")
    before, page = site.cache.renderings, site.get(second, "/queue")

    pages = [site.get(cookie, "/queue", **{"Accept-Encoding": kind}) for cookie in both for kind in ("gzip", "br")]

    # A busy machine may need longer than a page stays fresh; without sharing there would be ten.
    assert site.cache.renderings - before <= 3
    assert {timeless(one) for one in pages} == {timeless(page)}
    assert "member-own" in site.get(first, "/queue")
    assert "viewer-None" in page


def test_a_change_is_on_the_page_at_once(here: World, site: Site) -> None:
    admin = site.sign_in(Role.ADMIN, None)
    assert "newest-job" not in site.get(admin, "/queue")

    here.submit(name="newest-job", tenant="own")
    assert "newest-job" in site.get(admin, "/queue")
    assert site.get(admin, "/queue").count('"phase waiting"') == 2
    here.take()

    assert site.get(admin, "/queue").count('"phase waiting"') == 3


def test_a_token_that_has_expired_gets_no_page_from_the_cache(here: World, site: Site) -> None:
    cookie = site.sign_in(Role.MEMBER, "other")
    assert "secret-run" in site.get(cookie, "/queue")
    (token,) = [one for one in here.service.tokens.all() if one.tenant == "other"]

    here.expire(token.id)

    answer = site.client.get("/queue", headers={"Cookie": cookie})
    assert (answer.status_code, "secret" in answer.text) == (303, False)


def test_joined_parts_are_one_gzip_file() -> None:
    texts = (b"<p>before</p>" * 5000, "names: ü".encode(), b"<p>after</p>" * 5000)
    parts = [pack_part(text, last=text is texts[-1]) for text in texts]

    assert gzip.decompress(join_parts(*parts)) == b"".join(texts)
    assert len(join_parts(*parts)) < 2000


def page_of(size: int) -> SharedPage:
    return SharedPage(pack_part(bytes(size)), pack_part(b"", last=True))


def test_readers_that_come_while_a_page_is_rendered_wait_for_it_or_for_the_next_one() -> None:
    version, rendered, go = [0], [], threading.Event()

    def render() -> SharedPage:
        rendered.append(version[0])
        assert go.wait(60)
        return page_of(len(rendered))

    async def ask() -> list[SharedPage]:
        cache = PageCache(lambda: version[0])
        first = asyncio.create_task(cache.page("key", render))
        while not rendered:
            await asyncio.sleep(0)
        version[0] = 1  # what is being rendered is old already
        late = [asyncio.create_task(cache.page("key", render)) for _ in range(50)]
        await asyncio.sleep(0)
        go.set()
        return [await first, *[await one for one in late]]

    pages = asyncio.run(ask())

    assert rendered == [0, 1]
    assert [len(page.before.plain) for page in pages] == [1] + [2] * 50


def test_the_cache_is_bounded_and_keeps_what_was_used_last() -> None:
    async def fill() -> tuple[int, int, int]:
        cache = PageCache(lambda: 0, most_bytes=page_of(1000).size * 3)
        for number in range(100):
            await cache.page(number, lambda: page_of(1000))
            await cache.page(0, lambda: page_of(1000))
        return cache.bytes, cache.renderings, page_of(1000).size * 3

    held, renderings, most = asyncio.run(fill())

    assert held <= most
    # On a machine that is very busy a page may have to be rendered again because of its age.
    assert renderings < 150


def test_a_page_that_cannot_be_rendered_is_tried_again() -> None:
    async def ask() -> SharedPage:
        cache = PageCache(lambda: 0)
        with pytest.raises(ZeroDivisionError):
            await cache.page("key", lambda: page_of(1 // 0))
        return await cache.page("key", lambda: page_of(1))

    assert asyncio.run(ask()).before.plain == b"\0"


def test_a_page_whose_readers_have_left_is_not_rendered_in_the_way_of_others() -> None:
    rendered, go = list[str](), threading.Event()

    def render(name: str) -> SharedPage:
        rendered.append(name)
        assert go.wait(60)
        return page_of(1)

    async def ask() -> None:
        cache = PageCache(lambda: 0)
        first = asyncio.create_task(cache.page("first", lambda: render("first")))
        while not rendered:
            await asyncio.sleep(0)
        left = [asyncio.create_task(cache.page(number, lambda: render("left"))) for number in range(20)]
        stays = asyncio.create_task(cache.page("stays", lambda: render("stays")))
        await asyncio.sleep(0)
        for one in left:
            one.cancel()
        await asyncio.wait(left)
        go.set()
        await asyncio.gather(first, stays)

    asyncio.run(ask())

    assert rendered == ["first", "stays"]


def test_a_page_is_rendered_again_after_a_while_even_if_nothing_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "FRESH_S", 0.0)

    async def ask() -> int:
        cache = PageCache(lambda: 0)
        for _ in range(3):
            await cache.page("key", lambda: page_of(1))
        return cache.renderings

    assert asyncio.run(ask()) == 3


def test_fifty_streams_read_the_last_number_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def last_seq() -> int:
        reads.append(len(reads))
        return len(reads)

    async def listen() -> None:
        pulse = Pulse(last_seq)
        streams = [pulse.ticks() for _ in range(50)]
        for stream in streams:
            assert await anext(stream) == b"retry: 3000\n\n"
        began_s = asyncio.get_running_loop().time()
        assert {await one for one in asyncio.as_completed([anext(stream) for stream in streams])} == {
            b"event: tick\ndata: changed\n\n"
        }
        took_s = asyncio.get_running_loop().time() - began_s
        assert len(reads) <= 3 + took_s / 0.5  # at most one in half a second, whatever the number of streams

    monkeypatch.setattr("fairlead.service.web.live.EACH_S", 0.0)
    asyncio.run(listen())
