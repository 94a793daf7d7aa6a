"""Metrics: what the log records is counted once, also across restarts, and only tokens for it may read it."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from fairlead.engines.slurm.folding import BY_SLURM
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Advised, Arrived, Event, Failed, Finished, Lost, PolicySet, Progress, Started
from fairlead.model.histogram import Histogram
from fairlead.model.jobs import JobSpec
from fairlead.service.api.documents import Health
from fairlead.service.api.server import build_server, serve_on
from fairlead.service.store.followed import FollowedJob
from fairlead.service.store.tokens import Role
from fairlead.service.telemetry.auditing import MetricsAudit
from fairlead.service.telemetry.crowd import Crowd
from fairlead.service.telemetry.exposition import MetricFamily, render
from fairlead.service.telemetry.families import FAMILIES
from fairlead.service.telemetry.follower import LogFollower
from fairlead.service.telemetry.log_tally import MOST_TENANTS, ratios_of
from fairlead.service.telemetry.metrics import Metrics, MetricsSources
from fairlead.service.web.site import build_site
from serving import World, world
from waiting import PATIENCE_S, wait_for

SAMPLE = re.compile(r"^(?P<name>[a-z_]+)(?P<labels>\{.*\})? (?P<value>\S+)$")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


class Scraped:
    """A follower over the log of a world, and its metrics."""

    def __init__(self, here: World, sources: MetricsSources | None = None) -> None:
        service = here.service
        self._here = here
        self.audit = MetricsAudit(service.directory, service.reads.last_seq, every_s=0.05)
        self.metrics = Metrics(service.reads, self.audit, sources)
        self.follower = LogFollower(service.directory, service.reads, self.metrics)

    def __enter__(self) -> Scraped:
        self.follower.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.follower.stop()
        wait_for(lambda: not self.follower.is_running, "its end")

    def values(self) -> dict[str, float]:
        """All samples by name and labels, once the whole log and its tables were read."""
        last = self._here.service.reads.last_seq()
        found: dict[str, float] = {}

        def is_current() -> bool:
            found.clear()
            found.update(samples(self.metrics.text()))
            return found["fairlead_log_records_total"] >= last and found["fairlead_metrics_lag_records"] == 0

        wait_for(lambda: self.follower.after >= last and is_current(), "metrics of the whole log")
        return found


def samples(text: str) -> dict[str, float]:
    lines = [SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#")]
    assert all(lines), text
    return {f"{line['name']}{line['labels'] or ''}": float(line["value"]) for line in lines if line is not None}


def arrive(here: World, tenant: str) -> str:
    """A job that was submitted and taken."""
    id_ = here.submit(tenant=tenant, model="resnet50", steps=1000)
    here.take()
    return id_


def happen(here: World, event: Event) -> None:
    here.happen(event)
    here.log.commit(here.log.taken)


def decide(here: World, stop: list[int], start: dict[int, tuple[tuple[int, int], ...]], at_s: float) -> None:
    decision = Decision(
        at_s, Cause.ROUND, np.array(stop, dtype=np.int64), np.array(list(start), dtype=np.int64), tuple(start.values()),
        at_s + 60.0, "optimal",
    )  # fmt: skip
    here.log.decision(decision)
    here.log.state.fold(decision)
    here.log.commit(here.log.taken)


def one(j: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([j], dtype=np.int64)


def number(value: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([value])


def run_one_job(here: World, j: int, at_s: float) -> None:
    """The job starts 10 s after `at_s`, reports half the expected rate, and finishes after 100 s."""
    decide(here, [], {j: ((0, 1),)}, at_s + 10)
    happen(here, Started(at_s + 10, one(j), number(100.0), number(at_s + 10), measured=False))
    happen(here, Progress(at_s + 50, one(j), number(1000.0), number(50.0)))
    happen(here, Finished(at_s + 110, one(j), number(6400.0)))


def test_the_life_of_a_job_is_counted(here: World) -> None:
    arrive(here, "vision")
    at_s = float(here.log.state.arrival_s[0])
    run_one_job(here, 0, at_s)

    with Scraped(here) as scraped:
        found = scraped.values()

    assert found['fairlead_jobs_submitted_total{tenant="vision"}'] == 1
    assert found['fairlead_job_starts_total{tenant="vision"}'] == 1
    assert found['fairlead_jobs_ended_total{tenant="vision",outcome="finished"}'] == 1
    assert found['fairlead_jobs{state="finished",tenant="vision"}'] == 1
    assert found['fairlead_jobs{state="waiting",tenant="vision"}'] == 0
    assert found['fairlead_decisions_total{cause="round"}'] == 1
    assert found['fairlead_job_wait_seconds_sum{tenant="vision"}'] == pytest.approx(10, abs=1e-3)
    assert found['fairlead_job_completion_seconds_sum{tenant="vision"}'] == pytest.approx(110, abs=1e-3)
    assert found['fairlead_job_completion_seconds_bucket{tenant="vision",le="60"}'] == 0
    assert found['fairlead_job_completion_seconds_bucket{tenant="vision",le="300"}'] == 1
    assert found["fairlead_rate_error_ratio_sum"] == pytest.approx(0.5)


def test_a_restart_continues_the_counts_and_repeats_none(here: World) -> None:
    arrive(here, "vision")
    run_one_job(here, 0, float(here.log.state.arrival_s[0]))
    with Scraped(here) as scraped:
        before = scraped.values()

    now_s = here.log.state.now_s
    happen(here, Arrived(now_s, JobSpec("j9", "vision", "resnet50", now_s, 1, None)))
    happen(here, PolicySet(here.log.state.now_s, "fifo", {}, "policy x cannot decide"))
    with Scraped(here) as scraped:
        after = scraped.values()

    assert after['fairlead_jobs_submitted_total{tenant="vision"}'] == 2
    assert after["fairlead_policy_fallbacks_total"] == 1
    for name, value in before.items():
        if name.startswith("fairlead_job_") or "ended_total" in name:
            assert after[name] == value, name


def test_counts_begin_with_the_first_record_if_what_was_stored_is_gone_or_damaged(here: World) -> None:
    arrive(here, "vision")
    with Scraped(here) as scraped:
        first = scraped.values()
    stored = here.service.directory.followers / "metrics.json"

    for damage in ("", "{}", stored.read_text().replace('"tenants"', '"tenant"')):
        stored.write_text(damage)
        with Scraped(here) as scraped:
            again = scraped.values()
        assert again['fairlead_jobs_submitted_total{tenant="vision"}'] == 1
        assert again.keys() == first.keys()


def test_stops_by_decisions_and_losses_are_told_apart(here: World) -> None:
    for _ in range(4):
        arrive(here, "vision")
    at_s = here.log.state.now_s
    decide(here, [], dict.fromkeys(range(4), ((0, 1),)), at_s + 1)
    for j in range(4):
        happen(here, Started(at_s + 1, one(j), number(1.0), number(at_s + 1)))
    decide(here, [0, 1], {1: ((1, 1),)}, at_s + 2)
    happen(here, Lost(at_s + 3, one(2), number(0.0), reason="gone"))
    happen(here, Failed(at_s + 4, one(3), "broken"))

    with Scraped(here) as scraped:
        found = scraped.values()

    assert found['fairlead_preemptions_total{tenant="vision"}'] == 1
    assert found['fairlead_moves_total{tenant="vision"}'] == 1
    assert found['fairlead_engine_drift_total{kind="lost"}'] == 1
    assert found['fairlead_jobs_ended_total{tenant="vision",outcome="failed"}'] == 1


def test_starts_of_a_watched_slurm_are_no_decisions_of_the_policy_and_advice_is(here: World) -> None:
    arrive(here, "vision")
    at_s = here.log.state.now_s
    none = np.array([], dtype=np.int64)
    by_slurm = Decision(at_s + 1, Cause.EVENT, none, one(0), (((0, 1),),), at_s + 60, BY_SLURM, by_clock=True)
    here.log.decision(by_slurm)
    here.log.state.fold(by_slurm)
    happen(here, Advised(at_s + 2, Decision(at_s + 2, Cause.ROUND, one(0), none, (), at_s + 60, "fallback")))

    with Scraped(here) as scraped:
        found = scraped.values()

    assert found['fairlead_decisions_total{cause="slurm"}'] == 1
    assert found['fairlead_decisions_total{cause="event"}'] == 0
    assert found['fairlead_decisions_total{cause="round"}'] == 1
    assert found["fairlead_decisions_cut_short_total"] == 0
    assert found["fairlead_solver_fallbacks_total"] == 1
    assert found['fairlead_preemptions_total{tenant="vision"}'] == 0


def test_gpus_and_shares_are_those_of_now(here: World) -> None:
    arrive(here, "vision")
    arrive(here, "speech")
    decide(here, [], {0: ((0, 3),)}, here.log.state.now_s + 1)

    with Scraped(here) as scraped:
        found = scraped.values()

    assert found['fairlead_gpus{type="v100",state="held"}'] == 3
    assert found['fairlead_gpus{type="v100",state="free"}'] == 1
    assert found['fairlead_tenant_held_gpus{tenant="vision",type="v100"}'] == 3
    assert found['fairlead_tenant_entitled_gpus{tenant="vision",type="v100"}'] == 2
    assert found['fairlead_tenant_borrowed_gpus{tenant="vision",type="v100"}'] == 1
    assert found['fairlead_tenant_borrowed_gpus{tenant="speech",type="v100"}'] == 0
    assert found["fairlead_oldest_waiting_job_seconds"] > 0


def test_many_tenants_share_one_label_and_no_job_is_one(here: World) -> None:
    now_s = time.time()
    for k in range(MOST_TENANTS + 10):
        here.happen(Arrived(now_s, JobSpec(f"j{k + 1}", f"tenant{k}", "resnet50", now_s, 1, None)))
    here.log.commit(here.log.taken)

    with Scraped(here) as scraped:
        found = scraped.values()
        text = scraped.metrics.text()

    submitted = {name: value for name, value in found.items() if name.startswith("fairlead_jobs_submitted_total")}
    assert len(submitted) == MOST_TENANTS + 1
    assert submitted['fairlead_jobs_submitted_total{tenant="other"}'] == 10
    assert found['fairlead_jobs{state="waiting",tenant="other"}'] == 10
    assert not re.search(r'"j\d', text)


def test_the_audit_is_made_while_somebody_reads(here: World) -> None:
    arrive(here, "vision")
    run_one_job(here, 0, float(here.log.state.arrival_s[0]))
    with Scraped(here) as scraped:
        assert "fairlead_audit_timestamp_seconds" not in scraped.values()
        scraped.audit.start()
        try:
            wait_for(lambda: "fairlead_audit_timestamp_seconds" in scraped.metrics.text(), "an audit")
            found = scraped.values()
        finally:
            scraped.audit.stop()

    assert found['fairlead_tenant_held_gpu_seconds_total{tenant="vision",type="v100"}'] == pytest.approx(100, abs=1e-3)
    assert found["fairlead_audit_failures_total"] == 0


def test_fairness_of_a_job_is_that_of_its_definition() -> None:
    """Two jobs alone on two equal GPUs: each has its slice, so that finish-time fairness is 1 and nobody waits."""
    cluster = parse_short_form("v100:2")
    ratios = ratios_of(lambda model: model == "m", lambda spec: number(10.0), lambda: cluster.capacity)
    spec = '{"id": "j1", "tenant": "t", "model": "%s", "arrival_s": 0, "gpus": 1, "steps": null, "widths": [1], "types": []}'
    job = FollowedJob("j1", "n", "t", 0.0, 0.0, 100.0, 100.0, 1000.0, spec % "m")
    late = FollowedJob("j2", "n", "t", 0.0, 50.0, 150.0, 100.0, 1000.0, spec % "m")
    unknown = FollowedJob("j3", "n", "t", 0.0, 0.0, 100.0, 100.0, 1000.0, spec % "x")

    assert ratios(job, 2.0) == pytest.approx((1.0, 0.0))
    assert ratios(late, 2.0) == pytest.approx((1.5, 0.5))
    assert ratios(unknown, 2.0) is None


def test_the_mean_number_of_active_jobs_is_exact() -> None:
    crowd = Crowd([0.0, 10.0], [20.0])
    crowd.end(30.0)

    assert crowd.mean(0.0, 30.0) == pytest.approx((10 * 1 + 10 * 2 + 10 * 1) / 30)
    assert crowd.mean(10.0, 20.0) == pytest.approx(2.0)
    assert crowd.mean(5.0, 5.0) == 1.0


def test_labels_and_help_are_escaped() -> None:
    family = MetricFamily("m", "gauge", "first\nsecond \\", ("a",))

    assert render([(family, {('x"\\\n',): 0.5})]) == (
        '# HELP m first\\nsecond \\\\\n# TYPE m gauge\nm{a="x\\"\\\\\\n"} 0.5\n'
    )


def test_a_histogram_is_cumulative_and_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 7.0):
        histogram.observe(value)

    lines = render([(MetricFamily("m", "histogram", "h", (), (1.0, 2.0)), {(): histogram})]).splitlines()[2:]

    assert lines == ['m_bucket{le="1"} 1', 'm_bucket{le="2"} 2', 'm_bucket{le="+Inf"} 3', "m_sum 9.5", "m_count 3"]


def test_names_follow_the_conventions_of_prometheus() -> None:
    for family in FAMILIES:
        assert re.fullmatch(r"fairlead_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert not re.search(r"_(ms|hours?|minutes?|gib|percent)$", family.name)
        assert set(family.labels) <= {
            *("tenant", "type", "state", "outcome", "cause", "call", "kind", "database", "channel"),
            *("version", "python", "policy"),
        }


@pytest.mark.parametrize(
    ("role", "tenant", "status"), [(Role.METRICS, None, 200), (Role.ADMIN, None, 200), (Role.VIEWER, None, 403), (Role.MEMBER, "a", 403)]
)  # fmt: skip
def test_metrics_need_a_token_that_may_read_them(here: World, role: Role, tenant: str | None, status: int) -> None:
    said = here.client.get("/metrics", headers=here.token(role, tenant))

    assert said.status_code == status
    assert here.client.get("/metrics").status_code == 401


def test_a_metrics_token_reads_nothing_else(here: World) -> None:
    headers = here.token(Role.METRICS)

    for path in ("/v1/jobs", "/v1/me", "/v1/status", "/v1/shares", "/v1/tokens", "/v1/events", "/v1/openapi.json"):
        assert here.client.get(path, headers=headers).status_code == 403, path
    assert here.client.post("/v1/jobs", json={"run": "x"}, headers=headers).status_code == 403


def test_probes_need_no_token(here: World) -> None:
    for path in ("/healthz", "/readyz", "/v1/health"):
        said = here.client.get(path)
        assert said.status_code == 200
        assert said.json().keys() == set(Health.model_fields)


def test_the_table_in_the_documentation_is_that_of_the_service() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(fairlead_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", page, re.MULTILINE)

    assert rows == [
        (family.name, family.kind, ", ".join(f"`{label}`" for label in family.labels) or "-", family.help)
        for family in FAMILIES
    ]


def test_the_port_of_metrics_has_metrics_and_probes_and_only_for_this_machine(here: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as main, socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        service = replace(here.service, metrics=lambda: "m 1\n", metrics_port=port)
        server = build_server(service, (), build_site)
        server.config.timeout_graceful_shutdown = 1
        thread = threading.Thread(target=serve_on, args=(server, main, own))
        thread.start()
        try:
            url, general = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{main.getsockname()[1]}"
            assert httpx.get(f"{url}/metrics", timeout=PATIENCE_S).text == "m 1\n"
            assert httpx.get(f"{url}/healthz", timeout=PATIENCE_S).status_code == 200
            for path in ("/", "/sign-in", "/queue", "/static/x", "/v1/jobs", "/v1/tokens"):
                said = httpx.get(url + path, headers=here.admin, timeout=PATIENCE_S)
                assert said.status_code == 404, path
            assert httpx.post(f"{url}/metrics", timeout=PATIENCE_S).status_code == 404
            rebound = httpx.get(f"{url}/metrics", headers={"Host": f"example.org:{port}"}, timeout=PATIENCE_S)
            assert rebound.status_code == 403
            assert httpx.get(f"{general}/metrics", timeout=PATIENCE_S).status_code == 401
            assert httpx.get(f"{general}/healthz", timeout=PATIENCE_S).status_code == 200
        finally:
            server.should_exit = True
            thread.join()
