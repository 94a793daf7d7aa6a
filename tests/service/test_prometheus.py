"""A real Prometheus scrapes a real service, and promtool accepts what `contrib/` has."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from daemons import insist, running
from fairlead.service.telemetry.families import FAMILIES
from waiting import PATIENCE_S, wait_for

CONTRIB = Path(__file__).parents[2] / "contrib"
RULES, DASHBOARD = CONTRIB / "fairlead.rules.yml", CONTRIB / "grafana-dashboard.json"
NAMES = {family.name for family in FAMILIES} | {
    f"{family.name}_{part}" for family in FAMILIES if family.kind == "histogram" for part in ("bucket", "sum", "count")
}
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="needs prometheus and promtool: apt-get install prometheus",
)
ALERT = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'fairlead_decision_overdue{{instance="a"}}'
        values: '0x5 1x10'
      - series: 'fairlead_notices_total{{instance="a",channel="webhook",outcome="dropped"}}'
        values: '0x5 3x10'
    alert_rule_test:
      - {{eval_time: 5m, alertname: FairleadDecisionOverdue}}
      - eval_time: 8m
        alertname: FairleadDecisionOverdue
        exp_alerts:
          - exp_labels: {{instance: a, severity: critical}}
            exp_annotations: {{summary: A round should have been decided by now.}}
      - eval_time: 8m
        alertname: FairleadNoticesDropped
        exp_alerts:
          - exp_labels: {{instance: a, channel: webhook, severity: warning}}
            exp_annotations:
              summary: Notices to the webhook are dropped, because its receiver does not keep up.
"""


def mentioned(text: str) -> set[str]:
    return set(re.findall(r"\bfairlead_[a-z_]+", text))


def test_rules_and_dashboard_mention_only_metrics_that_exist() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]

    assert len(expressions) > 20
    assert mentioned(" ".join(expressions)) <= NAMES
    assert mentioned(RULES.read_text(encoding="utf-8")) <= NAMES
    assert mentioned(json.dumps(dashboard["templating"])) <= NAMES


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        at = panel["gridPos"]
        own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not own & cells, panel["title"]
        assert max(x for x, _ in own) < 24
        cells |= own


@needs_prometheus
def test_promtool_accepts_the_rules_and_they_fire(tmp_path: Path) -> None:
    cases = tmp_path / "cases.yml"
    cases.write_text(ALERT.format(rules=RULES))

    promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(cases))


@needs_prometheus
def test_a_real_prometheus_scrapes_a_real_service(tmp_path: Path) -> None:
    """With a token of role metrics; every query of the dashboard is valid, and promtool accepts the document."""
    folder = tmp_path / "service"
    folder.mkdir()
    with running(folder) as service:
        client = service.client()
        token = insist(lambda: client.post("/tokens", {"name": "p", "role": "metrics"}))["token"]
        insist(lambda: client.post("/jobs", {"name": "x", "run": "true", "tenant": "vision"}))
        url, headers = f"http://127.0.0.1:{service.port}/metrics", {"Authorization": f"Bearer {token}"}
        ended = 'fairlead_jobs_ended_total{tenant="vision",outcome="finished"} 1'
        wait_for(lambda: ended in httpx.get(url, headers=headers, timeout=PATIENCE_S).text, "the end of a job")
        answer = httpx.get(url, headers=headers, timeout=PATIENCE_S)

        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        promtool("check", "metrics", text=answer.text)
        found = scraped(tmp_path, service.port, token)

    assert found["submitted"] == "1"
    assert found["up"] == "1"
    assert found["failures"] == []


def started(folder: Path, config: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A Prometheus that answers, and its port. Another test may take a free port before it does, so it tries again."""
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        with (folder / "prometheus.log").open("ab") as log:
            process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        if answers(process, f"http://127.0.0.1:{port}/-/ready"):
            return process, port
        assert "address already in use" in (folder / "prometheus.log").read_text()


def answers(process: subprocess.Popen[bytes], url: str) -> bool:
    """Waits until it answers (True) or has ended (False)."""

    def ready() -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(url, timeout=PATIENCE_S).status_code == 200
        return False

    wait_for(lambda: process.poll() is not None or ready(), "Prometheus")
    return process.poll() is None


def scraped(folder: Path, port: int, token: str) -> dict[str, Any]:
    """What a Prometheus answers that scrapes the service with the rules of `contrib/`."""
    (folder / "token").write_text(token)
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{RULES}]\n"
        "scrape_configs:\n  - job_name: fairlead\n"
        f"    authorization: {{credentials_file: {folder / 'token'}}}\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
    )
    promtool("check", "config", str(config))
    process, own = started(folder, config)
    try:
        api = f"http://127.0.0.1:{own}/api/v1"
        submitted = 'fairlead_jobs_submitted_total{tenant="vision"}'
        wait_for(lambda: ask(api, submitted) or process.poll() is not None, "a scrape by Prometheus")
        dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        queries = [one.replace("$instance", f"127.0.0.1:{port}") for one in expressions]
        return {
            "submitted": value(ask(api, submitted)),
            "up": value(ask(api, 'up{job="fairlead"}')),
            "failures": [query for query in queries if ask(api, query) is None],
        }
    finally:
        process.terminate()
        process.wait()


def ask(api: str, query: str) -> list[Any] | None:
    """The result of a query; None if it is not valid, or nobody answers yet."""
    with suppress(httpx.HTTPError):
        answer = httpx.get(f"{api}/query", params={"query": query}, timeout=PATIENCE_S)
        if answer.status_code == 200:
            result: list[Any] = answer.json()["data"]["result"]
            return result
    return None


def value(result: list[Any] | None) -> str | None:
    return result[0]["value"][1] if result else None


def promtool(*arguments: str, text: str | None = None) -> None:
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
