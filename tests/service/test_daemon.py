"""The daemon as a whole: what it refuses, and what stays when it is started again."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from building import THREE
from daemons import insist, running
from fairlead.engines.requests import AddNode, RemoveNode
from fairlead.model.cluster import NodeGroup, parse_short_form
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.events import Arrived
from fairlead.model.jobs import JobSpec
from fairlead.service.client import save_credentials
from fairlead.service.process.daemon import ServiceOptions, serve
from fairlead.service.process.scheduler import SchedulerOptions
from fairlead.service.store.database import StoreError, open_reader, open_writer
from fairlead.service.store.directory import make, open_directory, stored_header
from fairlead.service.store.log import open_log
from fairlead.service.store.request_queue import read_after
from fairlead.service.store.tables import EVENTS
from serving import header
from waiting import until_told, wait_for


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceOptions:
    monkeypatch.setenv("FAIRLEAD_CREDENTIALS", str(tmp_path / "credentials.json"))
    return ServiceOptions(parse_short_form("v100:4,k80:2"), THREE, tmp_path / "state", port=0)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_an_address_that_others_can_reach_needs_a_flag(options: ServiceOptions, host: str) -> None:
    with pytest.raises(InputError, match="--allow-remote"):
        serve(replace(options, host=host))
    assert not options.state.exists()


def test_an_unknown_engine_or_policy_is_refused(options: ServiceOptions) -> None:
    with pytest.raises(InputError, match='engine "cloud" is not known'):
        serve(replace(options, plan=SchedulerOptions(engine="cloud")))
    with pytest.raises(InputError, match='policy "best" is not known'):
        serve(replace(options, policy="best"))


def test_a_start_that_the_scheduler_refuses_ends_with_its_reason(options: ServiceOptions) -> None:
    """Nothing else of the service runs yet, so that there is less to end than later."""
    with pytest.raises(FairleadError, match='there is no user "no such user"'):
        serve(replace(options, plan=SchedulerOptions(users=("no such user",))))


def test_another_engine_than_that_of_the_first_start_is_refused(options: ServiceOptions) -> None:
    """It would count the leases of the other engine as gone, and run their jobs a second time."""
    stored = header()
    make(open_directory(options.state), replace(stored, more={**stored.more, "engine": "local"}))

    with pytest.raises(InputError, match=r"was made with --engine local.*start with --engine local, or"):
        serve(replace(options, plan=SchedulerOptions(engine="pretend")))


def test_a_second_service_on_the_same_directory_is_refused(options: ServiceOptions) -> None:
    directory = open_directory(options.state)
    directory.lock("service")
    with pytest.raises(StoreError, match="another fairlead uses"):
        serve(options)


@pytest.mark.parametrize("name", ["requests.db", "events.db"])
def test_a_store_of_a_newer_version_is_refused_and_left_alone(options: ServiceOptions, name: str) -> None:
    make(open_directory(options.state), header())
    connection = sqlite3.connect(options.state / name)
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(FairleadError, match=r"newer Fairlead \(schema 99"):
        serve(options)
    connection = sqlite3.connect(options.state / name)
    assert connection.execute("PRAGMA user_version").fetchone()[0] == 99
    connection.close()


@pytest.mark.parametrize("name", ["requests.db", "events.db"])
def test_rubbish_in_the_store_is_refused_and_left_alone(options: ServiceOptions, name: str) -> None:
    make(open_directory(options.state), header())
    for side in ("-wal", "-shm"):
        (options.state / f"{name}{side}").unlink(missing_ok=True)
    (options.state / name).write_bytes(b"rubbish" * 1000)

    with pytest.raises(FairleadError, match=f"{name} cannot be read"):
        serve(options)
    assert (options.state / name).read_bytes() == b"rubbish" * 1000


def test_credentials_of_another_service_are_not_overwritten(options: ServiceOptions) -> None:
    path = save_credentials("http://127.0.0.1:1", "fl_0123456789ab_secret")
    before = path.read_text()

    with pytest.raises(InputError, match=r"another service \(http://127.0.0.1:1\).*FAIRLEAD_CREDENTIALS"):
        serve(options)
    assert path.read_text() == before


def test_options_that_differ_from_the_first_start_are_reported(
    options: ServiceOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    make(open_directory(options.state), header())
    save_credentials("http://127.0.0.1:1", "fl_0123456789ab_secret")  # ends the start soon after

    with pytest.raises(InputError, match="another service"):
        serve(replace(options, restart_s=7.0))
    assert "--restart-cost differs from the first start" in capsys.readouterr().err
    stored = stored_header(open_directory(options.state))
    assert stored.restart_s is None


def test_another_cluster_file_is_shown_and_asked_of_the_scheduler_once(
    options: ServiceOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = open_directory(options.state)
    make(directory, header("v100:4,k80:2"))
    save_credentials("http://127.0.0.1:1", "fl_0123456789ab_secret")  # ends the start soon after

    for _ in range(2):
        with pytest.raises(InputError, match="another service"):
            serve(replace(options, cluster=parse_short_form("v100:8")))

    shown = capsys.readouterr().err
    assert shown.count("the cluster changes: v100: 4 GPUs then, 8 now") == 1
    assert shown.count("nodes only then: k80-1") == 1
    with closing(open_reader(directory.requests)) as reader:
        requests = [request for _, request in read_after(reader, 0)]
    assert requests == [RemoveNode("k80-1"), AddNode("v100-2", NodeGroup(1, "v100", 4, 16.0))]


def test_a_full_disk_stops_the_scheduler_before_anything_is_acted_upon(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "state")
    make(directory, header())
    connection = open_writer(directory.events, EVENTS)
    log = open_log(connection)
    connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")

    def arrive(number: int) -> None:
        event = Arrived(1.0, JobSpec(f"j{number}", "t" * 50, "m" * 500, 1.0, 1, None))
        log.event(event)
        log.state.fold(event)
        log.commit(number)

    def fill() -> None:
        for number in range(1, 200):
            arrive(number)

    with pytest.raises(sqlite3.OperationalError, match="full"):
        fill()
    lost = log.state.jobs
    connection.close()

    again = open_writer(directory.events, EVENTS)
    before = open_log(again)
    assert 0 < before.state.jobs == before.taken == lost - 1
    assert again.execute("SELECT count(*) FROM jobs").fetchone()[0] == before.state.jobs
    again.close()


@pytest.mark.slow
def test_what_was_set_is_there_after_a_restart_and_jobs_go_on(tmp_path: Path) -> None:
    job = {"name": "long", "run": f"{until_told(tmp_path / 'over')}; echo through", "tenant": "a"}
    with running(tmp_path) as service:
        client = service.client()
        long = insist(lambda: client.post("/jobs", job))["id"]
        client.put("/policy", {"name": "las"})
        client.put("/tenants/a", {"weight": 2, "quotas": [{"type": "k80", "nominal": 1}]})
        client.post("/nodes/k80-1/drain")
        wait_for(lambda: client.get("/status")["nodes_down"] == ["k80-1"], "the last change to be taken")
        wait_for(lambda: client.get(f"/jobs/{long}")["phase"] == "running", "the job to run")
        service.stop()
        service.start()
        assert insist(lambda: client.get("/policy"))["name"] == "las"
        assert client.get("/tenants")["tenants"][0]["weight"] == 2
        assert client.get("/status")["nodes_down"] == ["k80-1"]
        client.post("/nodes/k80-1/resume")
        wait_for(lambda: client.get("/status")["nodes_down"] == [], "the node to be back")
        (tmp_path / "over").touch()
        wait_for(lambda: client.get(f"/jobs/{long}")["phase"] == "finished", "the job's end")
        shown = client.get(f"/jobs/{long}")
        assert (shown["leases"], shown["exit_code"]) == (1, 0)
        assert list(client.lines(f"/jobs/{long}/logs")) == ["through\n"]
        actions = [change["action"] for change in client.get("/changes")["changes"]]
    assert actions == ["node.resume", "node.drain", "tenant.set", "policy.set", "token.create"]


def test_a_service_that_is_asked_to_end_does_so_without_a_complaint(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        insist(lambda: service.client().get("/status"))

    assert service.process is not None
    assert service.process.returncode == -signal.SIGTERM
    assert "Traceback" not in (tmp_path / "serve.log").read_text()
