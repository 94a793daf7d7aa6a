"""The dashboard in a real browser, against a real daemon with real jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from daemons import Service, insist, running
from fairlead.service.web.door import POLICY
from fairlead.service.web.rights import PAGES
from serving import world
from waiting import PATIENCE_MS, until_told, wait_for
from watched_record import ROWS, write_record

CHROMIUM = "/usr/bin/chromium"
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SWITCHES += ["--disable-sync", "--no-first-run"]
NASTY = "<img src=x onerror=document.title=1><script>document.title=2</script>"
WIDTHS = (390, 800, 1280, 1920)


@dataclass
class Opened:
    """A service with a job that runs and one that waits for its GPUs, and a browser."""

    service: Service
    browser: Any
    over: Path  # ends the job that runs
    runs: str
    waits: str
    complaints: list[str] = field(default_factory=list)  # of the browser
    policies: set[str | None] = field(default_factory=set)  # headers of all answers that are pages

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    def sign_in(self, token: str, url: str = "", **options: Any) -> Any:
        """A page of a new user of the browser, at the overview of the service, or of another one."""
        page = self.browser.new_context(**options).new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("response", lambda response: self.policies.add(response.headers.get("content-security-policy")))
        page.goto(f"{url or self.url}/")
        page.fill("#token", token)
        page.click("button.main")
        page.wait_for_selector("#cells")
        return page

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning") and "404" not in message.text:
            self.complaints.append(message.text)

    def admin(self) -> str:
        token: str = json.loads((self.service.folder / "credentials.json").read_text())["token"]
        return token


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no browser at {CHROMIUM}; install Debian's chromium to run this")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    folder = tmp_path_factory.mktemp("dashboard")
    over = folder / "over"
    with running(folder) as service, api.sync_playwright() as playwright:
        ask = service.client()
        insist(lambda: ask.get("/status"))
        shout = f"echo '{NASTY}'; {until_told(over)}"
        first = {"name": "long", "tenant": "other", "run": shout, "resources": {"accelerators": "v100:6"}}
        runs = ask.post("/jobs", first)["id"]
        wait_for(lambda: ask.get(f"/jobs/{runs}")["phase"] == "running", "the first job to run")
        waits = ask.post("/jobs", {**first, "name": "second", "tenant": "own", "run": "true"})["id"]
        wait_for(lambda: ask.get(f"/jobs/{waits}")["phase"] == "waiting", "the second job to wait")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES, timeout=PATIENCE_MS)
        try:
            yield Opened(service, browser, over, runs, waits)
        finally:
            over.touch()
            browser.close()


def places(opened: Opened) -> list[str]:
    """Addresses of all pages that are read whole."""
    whole = [path for method, path in PAGES if method == "GET" and path not in ("/live", "/jobs/{id}/log")]
    return [path.replace("{id}", opened.waits).replace("{seq}", "1") for path in whole if path != "/what-if/answer"]


def test_pages_fit_their_windows_and_have_no_serious_fault_of_accessibility(opened: Opened) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    serious = {}
    for scheme in ("light", "dark"):
        page = opened.sign_in(opened.admin(), color_scheme=scheme, viewport={"width": 1280, "height": 900})
        for path in places(opened):
            page.goto(f"{opened.url}{path}")
            page.wait_for_selector("[data-ready=yes]", state="attached")
            serious[f"{path} {scheme}"] = faults(page, axe)
        page.context.close()
    assert {path: bad for path, bad in serious.items() if bad} == {}
    assert opened.complaints == []


def faults(page: Any, axe: Any) -> list[str]:
    """Widths that the page does not fit, and serious faults of accessibility."""
    bad = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            bad.append(f"wider than {width} pixels")
    found = axe.run(page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    return [*bad, *(f"{one['id']}: {one['nodes'][0]['html']}" for one in serious)]


def test_a_watched_slurm_is_shown_next_to_a_policy(opened: Opened, tmp_path: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    with world(tmp_path, only_watches=True) as watching:
        write_record(watching.service.directory.path, *ROWS)
        token, url = watching.admin["Authorization"].removeprefix("Bearer "), str(watching.client.base_url).rstrip("/")
        page = opened.sign_in(token, url)
        page.click("nav >> text=Slurm")
        page.select_option("select[name=window]", "all")
        page.wait_for_selector("#shadow-report .charts polyline", state="attached")

        assert "had only 0.00 of its slice for 4.0 h" in page.inner_text("#shadow-report")
        assert faults(page, axe) == []
        page.context.close()
    assert opened.complaints == []


def test_tables_stay_sorted_over_live_updates_and_are_downloaded(opened: Opened) -> None:
    page = opened.sign_in(opened.admin())
    page.goto(f"{opened.url}/queue?show=all")
    ids = "[...document.querySelectorAll('#jobs tbody th a')].map(e => e.textContent)"
    first = page.evaluate(ids)

    page.click("#jobs thead th:nth-child(1) .sort")
    page.click("#jobs thead th:nth-child(1) .sort")
    made = opened.service.client().post("/jobs", {"name": "later", "tenant": "own", "run": "true"})["id"]
    page.wait_for_selector(f"#jobs a[href='/jobs/{made}']")
    with page.expect_download() as saved:
        page.click("#jobs .tools button")
    lines = Path(saved.value.path()).read_text(encoding="utf-8").splitlines()

    assert page.evaluate(ids) == [made, *first[::-1]]
    assert lines[0].startswith("Job,Tenant,State,Place")
    assert [line.split(" ")[0] for line in lines[1:]] == [made, *first[::-1]]
    assert opened.complaints == []
    page.context.close()


def test_a_member_cannot_open_another_tenants_job(opened: Opened) -> None:
    made = opened.service.client().post("/tokens", {"name": "m", "role": "member", "tenant": "own"})
    page = opened.sign_in(made["token"])

    assert opened.runs not in page.content()
    page.goto(f"{opened.url}/queue?show=all")
    assert (opened.waits in page.content(), f"/jobs/{opened.runs}" in page.content()) == (True, False)
    for path in ("", "/log", "/why"):
        answer = page.request.get(f"{opened.url}/jobs/{opened.runs}{path}")
        assert answer.status == 404
        assert "long" not in answer.text()
    page.context.close()


def test_a_node_is_drained_after_a_preview(opened: Opened) -> None:
    page = opened.sign_in(opened.admin())
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("nav >> text=Admin")
    page.click("tr:has-text('k80-1') >> text=Drain, after a preview")
    page.wait_for_selector("#answer:has-text('utilisation')")
    page.click("text=Drain k80-1")

    page.wait_for_selector("#nodes tr:has-text('k80-1') >> text=drained")
    page.click("#nodes tr:has-text('k80-1') >> text=Resume")
    page.wait_for_selector("#nodes tr:has-text('k80-1') >> text=Drain, after a preview")
    page.context.close()


def test_the_policy_is_switched_after_a_preview(opened: Opened) -> None:
    page = opened.sign_in(opened.admin())
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("nav >> text=Admin")
    page.select_option("select[name=policy]", "fifo-sticky")
    page.click("form:has(select[name=policy]) >> text=Preview")
    page.wait_for_selector("#answer:has-text('utilisation')")
    page.click("text=Switch to fifo-sticky")

    wait_for(lambda: opened.service.client().get("/policy")["name"] == "fifo-sticky", "the other policy to decide")
    page.goto(f"{opened.url}/admin")
    assert page.inner_text("section[aria-label=Policy] b") == "fifo-sticky"
    page.wait_for_selector("#changes tr:has-text('policy.set')")
    page.context.close()


def test_quotas_are_set_after_a_preview(opened: Opened) -> None:
    page = opened.sign_in(opened.admin())
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{opened.url}/admin")
    page.fill("input[aria-label='Quotas of own']", "k80=2+1")
    page.click("tr:has(input[aria-label='Quotas of own']) >> text=Preview")
    page.wait_for_selector("#answer:has-text('utilisation')")
    page.click("text=Give own quotas k80=2+1")

    page.wait_for_selector("#changes tr:has-text('k80=2+1')")
    page.context.close()


def test_a_remedy_that_is_offered_is_applied(opened: Opened) -> None:
    """A job is put on hold and released, both by buttons; the second one is that of the remedy."""
    ask, over = opened.service.client(), opened.over.with_name("over-of-the-held")
    job = {"name": "held", "tenant": "own", "run": until_told(over), "resources": {"accelerators": "k80:1"}}
    id_ = ask.post("/jobs", job)["id"]
    page = opened.sign_in(opened.admin())
    page.goto(f"{opened.url}/jobs/{id_}")
    page.wait_for_selector("#facts .phase.running")
    page.click("#actions >> text=Hold")
    page.wait_for_selector("#facts .phase.held")
    page.click(f"#why .remedies button:has-text('Release {id_}')")

    page.wait_for_selector("#facts .phase.running")
    assert page.url == f"{opened.url}/jobs/{id_}"
    over.touch()
    page.wait_for_selector("#facts .phase.finished")
    page.context.close()


def test_the_cluster_is_scrubbed_back_to_its_beginning(opened: Opened) -> None:
    page = opened.sign_in(opened.admin())
    held = f"a[data-job='{opened.runs}']"
    page.wait_for_selector(held)
    page.press("#at", "Home")
    page.wait_for_selector("text=The cells show")
    assert page.query_selector(held) is None

    page.click("form.past >> text=Now")
    page.wait_for_selector(held)
    page.context.close()


def test_a_decision_says_how_long_it_took(opened: Opened) -> None:
    page = opened.sign_in(opened.admin())
    page.click("nav >> text=Decisions")
    page.click("#decisions tbody th a")

    page.wait_for_selector("text=Decided and stored in")
    page.context.close()


def test_a_waiting_job_is_explained_and_seen_to_start(opened: Opened) -> None:
    """From the queue to the page of the job; the page follows without being loaded again."""
    page = opened.sign_in(opened.admin())
    page.click("nav >> text=Queue")
    page.click(f"a[href='/jobs/{opened.waits}']")
    page.wait_for_selector("#facts .phase.waiting")
    page.wait_for_selector("#why:has-text('Who holds GPUs that it could use')")
    assert opened.runs in page.inner_text("#why")
    page.evaluate("window.sameDocument = true")

    shouting = opened.sign_in(opened.admin())
    shouting.goto(f"{opened.url}/jobs/{opened.runs}")
    shouting.wait_for_selector("#log:has-text('onerror')")
    assert shouting.title() == f"Job {opened.runs} · Fairlead"
    assert shouting.query_selector("main img") is None
    opened.over.touch()

    shouting.wait_for_selector("#facts .phase.finished")
    page.wait_for_selector("#facts .phase.finished")
    page.wait_for_selector("#grants svg rect", state="attached")
    assert page.evaluate("window.sameDocument")
    assert opened.complaints == []
    assert opened.policies == {POLICY}
