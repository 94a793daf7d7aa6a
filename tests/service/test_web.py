"""The pages of the dashboard over HTTP: sessions, rights, headers, and what each user may read there."""

from __future__ import annotations

import html
import math
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from fairlead.engines.requests import Command
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived
from fairlead.model.jobs import JobSpec
from fairlead.model.quotas import Quota
from fairlead.rounds.records import Record
from fairlead.service.jobfile import JobFile
from fairlead.service.store.estimates_file import StartEstimates, write_estimates
from fairlead.service.store.request_queue import Submission, submit_watched
from fairlead.service.store.tokens import Role
from fairlead.service.web.door import POLICY
from fairlead.service.web.event_words import words_of
from fairlead.service.web.history import grants_of
from fairlead.service.web.pages_session import own_path
from fairlead.service.web.pages_tenants import MOST_IN_MATRIX, envy_matrix
from fairlead.service.web.previewing import PreviewTask, answer_task
from fairlead.service.web.rendering import duration
from fairlead.service.web.rights import PAGES
from fairlead.service.web.sessions import LIFETIME_S, MOST_OF_A_TOKEN, Sessions, cookie_name
from fairlead.service.web.site import PARTS
from fairlead.service.web.tenant_history import SLICES, history_of
from fairlead.studies.journals.folding import open_state
from serving import World, header, start, world
from watched_record import ROWS, write_record

NASTY = "<img src=x onerror=alert(1)>"
FIRST_VIEW_BYTES = 300_000


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("web")) as made:
        yield made


_OPEN: list[httpx.Client] = []


@pytest.fixture(autouse=True)
def _close_browsers() -> Iterator[None]:
    yield
    while _OPEN:
        _OPEN.pop().close()


def new_browser(here: World) -> httpx.Client:
    """A browser without cookies, which is closed after the test."""
    _OPEN.append(httpx.Client(base_url=here.client.base_url, timeout=here.client.timeout))
    return _OPEN[-1]


def signed_in(here: World, role: Role = Role.ADMIN, tenant: str | None = None) -> httpx.Client:
    """A browser that has a session."""
    browser = new_browser(here)
    token = here.token(role, tenant)["Authorization"].removeprefix("Bearer ")
    assert send(browser, "/sign-in", token=token).status_code == 303
    return browser


def send(browser: httpx.Client, path: str, origin: str | None = None, **fields: str) -> httpx.Response:
    """What a browser sends for a form."""
    return browser.post(path, data=fields, headers={"Origin": origin or str(browser.base_url).rstrip("/")})


def test_nobody_sees_a_page_without_a_session(shared: World) -> None:
    for _, path in PAGES:
        place = (
            path.replace("{id}", "0" * 12 if "tokens" in path else "j1")
            .replace("{name}", "v100-1")
            .replace("{seq}", "1")
        )
        response = shared.client.get(place, headers={**shared.admin, "Sec-Fetch-Dest": "document"})
        assert (response.status_code, response.headers["location"][:8]) == (303, "/sign-in")
        assert shared.client.get(place, headers={**shared.admin, "Sec-Fetch-Dest": "empty"}).status_code == 401


def test_odd_requests_of_strangers_are_refused(shared: World) -> None:
    browser = new_browser(shared)

    assert browser.get("/static/a/b").status_code == 404
    assert browser.get("/static/" + "x" * 200).status_code == 404
    assert browser.post("/sign-in", content=b"").status_code == 403
    assert send(browser, "/sign-in", origin="http://[", token="x").status_code == 403
    assert send(browser, "/sign-in", **{f"field{i}": "x" for i in range(101)}).status_code == 400


def test_a_cookie_of_another_application_on_this_host_does_no_harm(shared: World) -> None:
    browser = signed_in(shared)
    own = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())

    assert browser.get("/queue", headers={"Cookie": f'theirs={{"a": 1}}; {own}'}).status_code == 200


def test_a_session_begins_with_a_token_and_a_careful_cookie(shared: World) -> None:
    token = shared.token(Role.VIEWER)["Authorization"].removeprefix("Bearer ")
    browser = new_browser(shared)

    refused = send(browser, "/sign-in", token="fl_000000000000_" + "x" * 43)
    answer = send(browser, "/sign-in", token=token, to="/queue?show=all")

    assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/queue?show=all")
    cookie = answer.headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "domain" not in cookie
    assert token not in cookie
    assert browser.get("/").status_code == 200


def test_a_cookie_opens_no_route_of_the_api(shared: World) -> None:
    browser = signed_in(shared)

    assert browser.get("/v1/jobs").status_code == 401
    assert browser.get("/v1/tokens").status_code == 401


def test_a_form_of_another_site_changes_nothing(shared: World) -> None:
    browser, id_ = signed_in(shared), shared.submit()

    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        assert send(browser, f"/jobs/{id_}/cancel", origin=origin).status_code == 403
    assert browser.post(f"/jobs/{id_}/cancel").status_code == 403
    assert send(browser, f"/jobs/{id_}/cancel").status_code == 303


def test_a_session_is_valid_only_at_the_address_where_it_began(shared: World) -> None:
    browser = signed_in(shared)
    ((name, value),) = browser.cookies.items()
    port = shared.client.base_url.port

    elsewhere = {"Host": f"localhost:{port}", "Cookie": f"{name}={value}", "Sec-Fetch-Dest": "empty"}

    assert new_browser(shared).get("/queue", headers=elsewhere).status_code == 401


def test_a_session_ends_when_its_user_signs_out(shared: World) -> None:
    browser = signed_in(shared)
    kept = dict(browser.cookies)

    assert send(browser, "/sign-out").status_code == 303

    assert dict(browser.cookies) == {}
    browser.cookies.update(kept)
    assert browser.get("/queue").status_code == 303


def test_a_session_ends_with_its_token(shared: World) -> None:
    browser = signed_in(shared, Role.VIEWER)
    token = max(shared.service.tokens.all(), key=lambda one: one.created_s)
    assert browser.get("/queue").status_code == 200

    shared.service.tokens.remember(replace(token, revoked_s=time.time()))

    assert browser.get("/queue").status_code == 303


def test_sessions_expire_and_are_bounded() -> None:
    sessions = Sessions()
    first = sessions.begin("t", "here", 0.0)

    assert sessions.find(first, "here", LIFETIME_S - 1) is not None
    assert sessions.find(first, "here", LIFETIME_S) is None
    for _ in range(MOST_OF_A_TOKEN):
        sessions.begin("t", "here", 1.0)
    assert len(sessions) == MOST_OF_A_TOKEN
    assert sessions.find(first, "here", 2.0) is None


def test_services_on_one_host_have_cookies_of_their_own() -> None:
    assert len({cookie_name("localhost:1"), cookie_name("localhost:2"), cookie_name("gpu.example.org")}) == 3


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\nb"])
def test_signing_in_leads_to_no_other_site(path: str) -> None:
    assert own_path(path) == "/"


def test_every_page_is_in_the_table_of_rights() -> None:
    routes = {
        (method, getattr(route, "path", ""))
        for part in PARTS
        for route in part.router.routes
        for method in getattr(route, "methods", None) or ()
    }
    open_to_all = {("GET", "/sign-in"), ("POST", "/sign-in"), ("POST", "/sign-out"), ("GET", "/static/{name}")}

    assert routes - open_to_all == set(PAGES)


def test_the_content_security_policy_holds_on_every_page(shared: World) -> None:
    id_ = shared.submit()
    shared.take()
    browser = signed_in(shared)
    places = [path.replace("{id}", id_).replace("{seq}", "1") for method, path in PAGES if method == "GET"]

    assert "unsafe" not in POLICY
    for path in ["/sign-in", "/jobs/x", "/jobs/j1/nowhere", "/static/fairlead.js", "/static/none", *places]:
        if path == "/live":
            continue
        answer = browser.get(path)
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=|javascript:", answer.text), path


def test_a_member_receives_nothing_of_another_tenants_jobs(here: World) -> None:
    for name in ("secret-run", "secret-wait"):
        here.submit(name=name, tenant="other")
    here.submit(name="mine", tenant="own")
    here.take()
    start(here, "j1")
    member, admin = signed_in(here, Role.MEMBER, "own"), signed_in(here)

    for path in ("/", "/queue?show=all", "/queue?show=all&tenant=other", "/queue?q=secret", "/queue?q=j1&show=all"):
        text = member.get(path).text
        for word in ("secret-run", "secret-wait", 'data-job="j1"', "/jobs/j1", "/jobs/j2"):
            assert word not in text, path
    for path in ("/jobs/j1", "/jobs/j2", "/jobs/j1/why", "/jobs/j1/log"):
        unknown = member.get(path.replace("j1", "j777").replace("j2", "j777"))
        hidden = member.get(path)
        assert (hidden.status_code, unknown.status_code) == (404, 404)
        assert hidden.text.replace(path[6:8], "j777") == unknown.text
    assert send(member, "/jobs/j1/cancel").status_code == 404
    assert "secret-run" in admin.get("/queue?show=all").text
    assert "in use by others" in member.get("/").text


def test_a_viewer_gets_no_buttons_and_may_not_use_them(shared: World) -> None:
    id_ = shared.submit()
    shared.take()
    viewer = signed_in(shared, Role.VIEWER)

    assert f"/jobs/{id_}/cancel" not in viewer.get(f"/jobs/{id_}").text
    assert send(viewer, f"/jobs/{id_}/cancel").status_code == 403


def test_markup_in_names_is_text(here: World) -> None:
    """Jobs of Slurm have whatever names their owners like."""
    spec = replace(JobFile(name="x", run="true").spec("12", NASTY, 0.0, {"v100": 4}), model=NASTY)
    watched = [Submission(NASTY, spec, Command(""))]
    here.service.writer.write_now(lambda connection: submit_watched(connection, "slurm", watched))
    here.take()
    start(here, "12")
    browser = signed_in(here)

    for path in ("/", "/queue", "/jobs/12", f"/queue?q={NASTY}"):
        text = browser.get(path).text
        assert "<img" not in text
        assert "&lt;img src=x" in text


def test_the_queue_is_paged_and_searched_in_a_stable_order(here: World) -> None:
    for number in range(1, 131):
        here.submit(name=f"run-{number % 13}", tenant="own")
    here.take()
    browser = signed_in(here)

    def ids(path: str) -> list[str]:
        return re.findall(r'<th scope="row"><a href="/jobs/(j\d+)">', browser.get(path).text)

    pages = [*ids("/queue"), *ids("/queue?page=2")]
    assert pages == [f"j{number}" for number in range(1, 131)]
    assert ids("/queue?order=newest")[:2] == ["j130", "j129"]
    assert ids("/queue?q=run-12") == [f"j{number}" for number in range(12, 131, 13)]
    assert ids("/queue?q=j77") == ["j77"]
    assert ids("/queue?q=%25") == []
    assert ids("/queue?show=running") == []


def test_the_queue_says_how_many_estimates_of_the_last_week_held(here: World) -> None:
    here.submit()
    here.take()
    browser = signed_in(here)
    newest = StartEstimates(time.time(), time.time() + 60.0, "fifo", 0.8, 1.0, (), held=17, checked=20)
    write_estimates(here.service.directory, newest)

    assert "In the last week 17 of 20 estimated starts held." in browser.get("/queue").text


def test_the_first_view_is_small(here: World) -> None:
    for _ in range(100):
        here.submit(name="a-usual-name-of-a-job", tenant="own")
    here.take()
    browser = signed_in(here)

    pages = [browser.get(path).text for path in ("/", "/queue")]
    beside = {path for page in pages for path in re.findall(r'(?:href|src)="(/static/[^"]+)"', page)}
    answers = [browser.get(path) for path in beside]

    assert len(beside) == 4
    assert all("immutable" in answer.headers["cache-control"] for answer in answers)
    assert {answer.headers.get("content-encoding") for answer in answers if len(answer.content) > 2000} == {"gzip"}
    assert sum(len(answer.content) for answer in answers) + max(len(page) for page in pages) < FIRST_VIEW_BYTES


def test_grants_are_the_stretches_between_a_start_and_an_end() -> None:
    records = [
        {"event": "decision", "time_s": 10.0, "start": {"j1": {"a": 2}}, "stop": []},
        {"event": "started", "time_s": 11.0, "jobs": ["j1"]},
        {"event": "stopped", "time_s": 20.0, "jobs": ["j1"]},
        {"event": "decision", "time_s": 30.0, "start": {"j1": {"a": 1, "b": 1}, "j2": {"a": 1}}, "stop": []},
        {"event": "lost", "time_s": 35.0, "jobs": ["j2"], "reason": "node down"},
    ]

    first, second = grants_of("j1", records, {"a": "v100", "b": "k80"})

    assert (first.seconds(99.0), first.types, first.ending) == (10.0, {"v100": 2}, "stopped for other jobs")
    assert (second.seconds(40.0), second.types, second.to_s) == (10.0, {"v100": 1, "k80": 1}, None)


def test_events_are_told_in_words() -> None:
    records: list[dict[str, Any]] = [
        {"event": "arrived", "job": {"id": "j1"}},
        {"event": "arrived", "job": {"id": "j2"}},
        {"event": "progress", "jobs": ["j3"]},
        {"event": "cancelled", "jobs": ["j4"]},
        {"event": "node_down", "node": "a-1"},
        {"event": "failed", "jobs": ["j5"], "reason": "exit code 1"},
    ]

    assert words_of(records) == [
        "node a-1 is down",
        "j1, j2 arrived",
        "j4 was cancelled",
        "j5 (exit code 1) failed",
        "1 report of progress and speed",
    ]


def test_decisions_are_stepped_through_by_each_user_with_its_own_jobs(here: World) -> None:
    here.submit(name="theirs", tenant="other")
    here.submit(name="mine", tenant="own")
    here.take()
    start(here, "j1", node=0)
    start(here, "j2", node=1)
    member, admin = signed_in(here, Role.MEMBER, "own"), signed_in(here)
    first, second = sorted(int(seq) for seq in re.findall(r'/decisions/(\d+)"', admin.get("/decisions").text))

    step = admin.get(f"/decisions/{first}").text

    assert f'href="/decisions/{second}" data-step="next"' in step
    assert ("starts on" in step, "j1, j2 arrived" in step) == (True, True)
    seen = member.get("/decisions").text + member.get(f"/decisions/{first}").text + member.get("/tenants").text
    assert "j1" not in seen
    assert "/jobs/j2" in member.get(f"/decisions/{second}").text
    assert admin.get(f"/decisions/{second + 10}").status_code == 404


def test_an_operator_changes_nodes_weights_policy_and_tokens(here: World) -> None:
    browser = signed_in(here)
    here.token(Role.VIEWER)
    token = max(here.service.tokens.all(), key=lambda one: one.created_s)

    for path, fields in (
        ("/admin/tenants/vision", {"weight": "2.5"}),
        ("/admin/policy", {"policy": "gavel"}),
        ("/admin/nodes/v100-1/drain", {}),
        (f"/admin/tokens/{token.id}/revoke", {}),
    ):
        assert send(browser, path, **fields).headers["location"] == "/admin", path
    here.take()

    page = browser.get("/admin").text
    for action in ("tenant.set", "policy.set", "node.drain", "token.revoke"):
        assert action in page
    assert "<b>gavel</b>" in page
    assert "revoked" in page
    assert here.service.reads.tenants()["vision"].weight == 2.5
    assert send(browser, "/admin/tenants/vision", weight="much").status_code == 409


def test_a_token_is_created_and_shown_once(here: World) -> None:
    browser = signed_in(here)

    page = send(browser, "/admin/tokens", name="alice", role="member", tenant="vision", lifetime="1d")

    (secret,) = re.findall(r'<code id="token">(fl_[^<]+)</code>', page.text)
    mine = here.client.get("/v1/me", headers={"Authorization": f"Bearer {secret}"}).json()
    assert (mine["name"], mine["role"], mine["tenant"]) == ("alice", "member", "vision")
    assert "no-store" in page.headers["cache-control"]
    admin = browser.get("/admin").text
    assert ("alice" in admin, secret in admin) == (True, False)
    for wrong in ({"name": "a", "role": "member"}, {"name": "<b>", "role": "viewer"}, {"name": "a", "role": "king"}):
        assert send(browser, "/admin/tokens", **wrong).status_code == 409, wrong
    assert send(signed_in(here, Role.VIEWER), "/admin/tokens", name="a", role="viewer").status_code == 403


def test_a_weight_is_set_without_touching_quotas(here: World) -> None:
    quota = {"type": "v100", "nominal": 2, "borrowing_limit": None, "lending_limit": 1}
    here.client.put("/v1/tenants/vision", json={"weight": 1, "quotas": [quota]}, headers=here.admin)
    here.take()

    send(signed_in(here), "/admin/tenants/vision", weight="3")
    here.take()

    terms = here.service.reads.tenants()["vision"]
    assert (terms.weight, [asdict(one) for one in terms.quotas]) == (3.0, [quota])


def test_quotas_are_set_without_touching_the_weight_and_checked(here: World) -> None:
    here.client.put("/v1/tenants/vision", json={"weight": 2, "quotas": []}, headers=here.admin)
    here.take()
    browser = signed_in(here)

    assert send(browser, "/admin/tenants/vision", weight="", quotas="v100=3+1-2, k80=1").status_code == 303
    here.take()

    terms = here.service.reads.tenants()["vision"]
    assert (terms.weight, terms.quotas) == (2.0, (Quota("v100", 3, 1, 2), Quota("k80", 1)))
    page = browser.get("/admin").text
    assert ('value="v100=3+1-2, k80=1"' in page, "weight 2, quotas v100=3+1-2, k80=1" in page) == (True, True)
    for wrong in ("v100", "v100=much", "h100=1", "v100=1,v100=2", "v100=1-2", "v100=99999999", f"{'x' * 300}=1", ""):
        assert send(browser, "/admin/tenants/vision", quotas=wrong).status_code == 409, wrong
    send(browser, "/admin/tenants/vision", quotas="none")
    here.take()
    assert here.service.reads.tenants()["vision"].quotas == ()


def test_quotas_are_previewed_and_replace_those_of_before(here: World) -> None:
    nothing: list[dict[str, Any]] = [{"type": type_, "nominal": 0, "borrowing_limit": 0} for type_ in ("v100", "k80")]
    for _ in range(6):
        here.submit(tenant="own", steps=100)
    here.take()

    def used(quotas: list[dict[str, Any]]) -> tuple[float, float]:
        task = PreviewTask(str(here.service.directory.path), (), 3600.0, tenant="own", quotas=quotas)
        rows = {row["label"]: row for row in answer_task(task)["rows"]}
        return rows["utilisation"]["before"]["mean"], rows["utilisation"]["after"]["mean"]

    with_jobs, without = used(nothing)
    assert (with_jobs > 0, without) == (True, 0.0)
    here.client.put("/v1/tenants/own", json={"weight": 1, "quotas": nothing}, headers=here.admin)
    here.take()
    assert used(nothing[:1])[0] == 0.0
    assert used([])[1] > 0.0
    form = signed_in(here).get("/what-if?tenant=own&weight=&quotas=v100%3D1").text
    assert ("Give own" in form, "quotas=v100%3D1&" in html.unescape(form)) == (False, True)
    assert "Give own quotas v100=1" in signed_in(here).get("/what-if/answer?tenant=own&quotas=v100%3D1").text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0, "0s"), (0.0214, "21 ms"), (0.9996, "1s"), (31.42, "31s"), (90, "1m 30s")]
)
def test_durations_are_read_at_a_glance(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_tenant_has_one_colour_on_every_page_and_for_every_reader(here: World) -> None:
    for tenant in ("first", "second"):
        here.submit(tenant=tenant)
    here.take()

    for reader in (signed_in(here), signed_in(here, Role.MEMBER, "second")):
        for path in ("/queue?show=all", "/tenants"):
            assert '<span class="dot c1" aria-hidden="true"></span>second' in reader.get(path).text, path


def test_a_waiting_job_shows_its_speed_on_every_type_and_its_checkpoint(here: World) -> None:
    id_ = here.submit(model="resnet50", resources={"accelerators": "v100:1"})
    here.take()

    checkpoint = here.service.directory.path / "leases" / id_ / "checkpoints" / "1" / "state"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(bytes(2048))

    page = signed_in(here).get(f"/jobs/{id_}/why").text

    assert "Its checkpoint takes 2 KiB." in page
    assert "Its speed by type" in page
    assert ("enough GPUs are free" in page, "its owner allows v100" in page) == (True, True)


def test_only_admins_may_preview_or_change(shared: World) -> None:
    for role, tenant in ((Role.MEMBER, "own"), (Role.VIEWER, None)):
        browser = signed_in(shared, role, tenant)
        assert "/admin" not in browser.get("/").text
        for path in ("/admin", "/what-if", "/what-if/answer?policy=gavel"):
            assert browser.get(path).status_code == 403
        assert send(browser, "/admin/policy", policy="gavel").status_code == 403
        assert send(browser, "/admin/nodes/v100-1/drain").status_code == 403


def test_a_change_is_previewed_by_simulation(here: World) -> None:
    for _ in range(6):
        here.submit(tenant="own", steps=100)
    here.take()
    browser = signed_in(here)

    form = browser.get("/what-if?policy=las&horizon=1h").text
    answer = browser.get("/what-if/answer?policy=las&node=v100-1&horizon=1h")

    assert answer.status_code == 200
    assert "mean JCT" in answer.text
    assert ("Switch to las" in form, "Switch to las" in answer.text) == (False, True)  # a button comes with the answer
    assert browser.get("/what-if/answer?node=nowhere").status_code == 422


def test_the_cluster_is_shown_as_it_was(here: World) -> None:
    here.submit(name="theirs", tenant="other")
    here.submit(name="mine", tenant="own")
    here.take()
    start(here, "j1", node=0)
    then_s = here.log.state.now_s
    start(here, "j2", node=1)
    member, admin = signed_in(here, Role.MEMBER, "own"), signed_in(here)

    def jobs(browser: httpx.Client, path: str) -> list[str]:
        return re.findall(r'data-job="(j\d+)"', browser.get(path).text)

    assert jobs(admin, "/") == ["j1", "j2"]
    assert jobs(admin, f"/?at={then_s}") == ["j1"]
    assert jobs(member, f"/?at={then_s}") == []
    assert jobs(member, f"/?at={here.log.state.now_s}") == ["j2"]
    assert "data-live" not in admin.get(f"/?at={then_s}").text
    assert admin.get("/?at=1").status_code == 200


def test_a_watching_service_shows_slurm_next_to_a_policy_by_team_and_jobs_to_their_tenant(tmp_path: Path) -> None:
    with world(tmp_path, only_watches=True) as here:
        write_record(here.service.directory.path, *ROWS)
        admin, member = signed_in(here), signed_in(here, Role.MEMBER, "b")

        page, theirs = (
            html.unescape(browser.get("/shadow/report?policy=oef-coop&window=all").text) for browser in (admin, member)
        )

        assert ('href="/shadow"' in admin.get("/").text, 'href="/what-if"' in admin.get("/").text) == (True, False)
        assert "Let oef-coop advise" in admin.get("/shadow?policy=oef-coop").text
        assert "had only 0.00 of its slice for 4.0 h" in page
        assert re.search(r'href="/jobs/3">3</a>.*?\+4h', page, re.DOTALL)
        assert page.count("<polyline") == 2 * 2 * 2  # teams, measures, alternatives
        for text in (page, theirs):
            assert ("a: hours waited" in text, "arrivals, starts and lengths are Slurm's" in text) == (True, True)
        assert ("/jobs/1" in page, "/jobs/1" in theirs, "/jobs/3" in theirs) == (True, False, True)
        assert admin.get("/shadow/report?policy=nothing").status_code == 422
        assert "let the service watch for longer" in admin.get("/shadow/report?window=1d").text


def test_only_a_watching_service_has_a_page_about_slurm(shared: World) -> None:
    browser = signed_in(shared)

    assert 'href="/shadow"' not in browser.get("/").text
    assert [browser.get(path).status_code for path in ("/shadow", "/shadow/report")] == [404, 404]


def test_the_history_of_tenants_is_that_of_the_log() -> None:
    """Of six GPUs each of two tenants is entitled to three; one of them gets a GPU after 10 s, the other waits."""
    state = open_state(header())
    specs = [JobSpec(f"j{k}", tenant, "m", 0.0, 1, None) for k, tenant in enumerate(("own", "other"))]
    none, first = np.array([], dtype=np.int64), np.array([0])
    decision = Decision(10.0, Cause.ROUND, none, first, (((0, 1),),), math.inf, "")
    records: list[Record] = [*(Arrived(0.0, spec) for spec in specs), decision]

    history = history_of(state, records, 0.0, float(SLICES))

    assert (history["from_s"], history["slice_s"]) == (0.0, 1.0)
    assert history["tenants"]["own"]["held"] == [0.0] * 10 + [1.0] * (SLICES - 10)
    assert history["tenants"]["own"]["waiting"] == [1.0] * 10 + [0.0] * (SLICES - 10)
    assert history["tenants"]["other"]["waiting"] == [1.0] * SLICES
    assert history["tenants"]["other"]["entitled"] == [3.0] * SLICES


def test_tenants_have_a_history_and_an_envy_matrix(here: World) -> None:
    here.submit(name="mine", tenant="own")
    here.submit(name="theirs", tenant="other")
    here.take()
    start(here, "j1")
    member = signed_in(here, Role.MEMBER, "own")

    history = member.get("/tenants/history?window=1h").text

    assert ("own: GPUs" in history, "other: jobs that wait" in history) == (True, True)
    assert history.count("<polyline") == 2 * 3  # tenants; held, entitled and waiting
    assert "theirs" not in history
    assert member.get("/tenants?window=7d").text.count("data-load=") == 2
    assert member.get("/tenants/history?window=9d").status_code == 404


def test_the_envy_matrix_has_the_largest_envies() -> None:
    few: dict[str, dict[str, Any]] = {
        "a": {"envies": {"b": 0.5, "c": None}},
        "b": {"envies": {}},
        "c": {"envies": {"b": 0.1}},
        "d": {"envies": {}},
    }
    many = {f"t{k:02}": {"envies": {f"t{k + 1:02}": float(k)}} for k in range(40)}

    assert envy_matrix(few) == {
        "a": {"a": 0.0, "b": 0.5, "c": math.inf},
        "b": {"a": 0.0, "b": 0.0, "c": 0.0},
        "c": {"a": 0.0, "b": 0.1, "c": 0.0},
    }
    assert list(envy_matrix(many)) == [f"t{k}" for k in range(41 - MOST_IN_MATRIX, 41)]
