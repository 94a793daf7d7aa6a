"""The API in this process, over a real state directory; the scheduler's side is moved by hand."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from building import THREE
from fairlead.engines.local.files import LocalReader
from fairlead.engines.requests import SetLimits, SetPolicy, SetTenant, Submit
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, Event, LimitsSet, PolicySet, Started, TenantSet
from fairlead.rounds.journal import Header
from fairlead.service.api.context import ServiceContext
from fairlead.service.api.limits import Limits
from fairlead.service.api.scheduler_state import SchedulerState
from fairlead.service.api.server import build_server, serve_on
from fairlead.service.store import request_queue
from fairlead.service.store.database import open_reader, open_writer
from fairlead.service.store.directory import make, open_directory
from fairlead.service.store.log import Log, open_log
from fairlead.service.store.reads import Reads
from fairlead.service.store.tables import EVENTS, REQUESTS
from fairlead.service.store.tokens import Role, Tokens, new_token, store_token
from fairlead.service.store.writer import Writer
from fairlead.service.web.site import WebSite, build_site
from fairlead.studies.journals.folding import open_state
from waiting import PATIENCE_S

JOB: dict[str, Any] = {"name": "train", "run": "python train.py"}
SETTINGS = {"round_s": 60.0, "when": "events", "min_run_s": 60.0, "scatter": False}


def header(cluster: str = "v100:4,k80:2") -> Header:
    return Header(parse_short_form(cluster), THREE, None, "fifo", {}, SETTINGS, {}, {"unmeasured": True})


class World:
    def __init__(self, service: ServiceContext, log: Log, client: httpx.Client) -> None:
        self.service, self.log, self.client = service, log, client
        self.admin = self.token(Role.ADMIN)

    def token(self, role: Role, tenant: str | None = None) -> dict[str, str]:
        """Headers with a new token."""
        shown, token = new_token(f"{role}-{tenant}", role, tenant, time.time(), 86400.0)
        self.service.writer.write_now(lambda connection: store_token(connection, token))
        self.service.tokens.remember(token)
        return {"Authorization": f"Bearer {shown}"}

    def expire(self, id_: str) -> None:
        """Its time is over now."""
        token = self.service.tokens.get(id_)
        assert token is not None
        self.service.tokens.remember(replace(token, expires_s=time.time()))

    def submit(self, headers: dict[str, str] | None = None, **more: Any) -> str:
        said = self.client.post("/v1/jobs", json={**JOB, **more}, headers=headers or self.admin)
        assert said.status_code == 201, said.text
        id_: str = said.json()["id"]
        return id_

    def take(self) -> None:
        """What a scheduler would log of the requests so far, as far as nothing has to run for it."""
        with closing(open_reader(self.service.directory.requests)) as reader:
            found = request_queue.read_after(reader, self.log.taken)
        for _, request in found:
            if isinstance(request, Submit):
                self.happen(Arrived(time.time(), replace(request.spec, arrival_s=time.time())))
            elif isinstance(request, SetTenant):
                self.happen(TenantSet(time.time(), request.tenant, request.weight, request.quotas))
            elif isinstance(request, SetLimits):
                self.happen(LimitsSet(time.time(), request.tenant, request.limits))
            elif isinstance(request, SetPolicy):
                self.happen(PolicySet(time.time(), request.policy, request.parameters))
        self.log.commit(found[-1][0] if found else self.log.taken)

    def happen(self, event: Event) -> None:
        self.log.event(event)
        self.log.state.fold(event)


@contextmanager
def world(
    path: Path,
    limits: Limits | None = None,
    proxies: Sequence[str] = (),
    scheduler: Callable[[], SchedulerState] = lambda: SchedulerState(ready=True),
    only_watches: bool = False,
) -> Iterator[World]:
    directory = open_directory(path / "state")
    make(directory, header())
    connection, events = open_writer(directory.requests, REQUESTS), open_writer(directory.events, EVENTS)
    tokens, writer, reads = Tokens(connection), Writer(connection), Reads(directory, LocalReader(directory.path))
    service = ServiceContext(
        directory,
        header().cluster,
        open_state(header()).estimator,
        writer,
        tokens,
        reads,
        limits or Limits(),
        scheduler=scheduler,
        only_watches=only_watches,
        patience_s=0.0,
    )
    try:
        with listening(service, proxies) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            yield World(service, open_log(events), client)
    finally:
        writer.close()
        reads.close()
        events.close()


@contextmanager
def listening(
    service: ServiceContext, proxies: Sequence[str] = (), build: Callable[[ServiceContext], WebSite] = build_site
) -> Iterator[str]:
    """The app behind a real web server, on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = build_server(service, proxies, build)
        server.config.timeout_graceful_shutdown = 1
        server.config.timeout_keep_alive = int(PATIENCE_S)  # on a busy machine, a test may be silent for a while
        thread = threading.Thread(target=serve_on, args=(server, taken))
        thread.start()
        try:
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def start(here: World, id_: str, node: int = 0) -> None:
    """The job gets a GPU and begins."""
    jobs = np.array([here.log.state.position[id_]])
    decision = Decision(time.time(), Cause.ROUND, jobs[:0], jobs, (((node, 1),),), math.inf, "")
    here.log.decision(decision)
    here.log.state.fold(decision)
    here.happen(Started(time.time(), jobs, np.array([1.0]), np.array([time.time()])))
    here.log.commit(here.log.taken)
