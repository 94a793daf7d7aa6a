"""`fairlead serve`: the API process, which supervises the scheduler process."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead import __version__
from fairlead.engines.registry import ENGINES
from fairlead.engines.requests import SetPolicy
from fairlead.model.cluster import Cluster
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.words import choose
from fairlead.policies import find_round_policy
from fairlead.rates.profile import Profile
from fairlead.rounds.journal import Header, header_to_json
from fairlead.rounds.loop import settings_to_json
from fairlead.service.api.limits import Limits
from fairlead.service.client import CREDENTIALS, Client, credentials_path, save_credentials
from fairlead.service.live_policies import tried
from fairlead.service.process.scheduler import SchedulerOptions
from fairlead.service.process.supervisor import Patience, Supervisor
from fairlead.service.store import changes, request_queue
from fairlead.service.store.cluster_file import difference, remember
from fairlead.service.store.database import StoreError, open_writer
from fairlead.service.store.directory import StateDirectory, is_new, make, open_directory, stored_header
from fairlead.service.store.reads import Reads
from fairlead.service.store.tables import REQUESTS
from fairlead.service.store.tokens import Role, Token, Tokens, new_token
from fairlead.service.store.writer import Writer
from fairlead.studies.journals.folding import open_state

if TYPE_CHECKING:
    import uvicorn

DEFAULT_POLICY = "oef-coop"
ADMIN_LIFETIME_S = 365 * 86400.0
_WAIT_MESSAGE_S = 30.0  # between two messages that the scheduler is still starting


@dataclass(frozen=True)
class ServiceOptions:
    cluster: Cluster
    profile: Profile
    state: Path
    host: str = "127.0.0.1"
    port: int = 7411  # 0: any free port
    remote: bool = False  # may listen on an address that other machines can reach
    policy: str | None = None  # None: the last one, initially the default
    plan: SchedulerOptions = field(default_factory=SchedulerOptions)
    restart_s: float | None = None  # overrides every model's restart cost
    sensing: str = "three-layer"
    new_token: bool = False  # create another admin token
    limits: Limits = field(default_factory=Limits)
    patience: Patience = field(default_factory=Patience)


def serve(options: ServiceOptions) -> None:
    """Run the service until a signal ends it; jobs keep running. FairleadError means that it cannot start or continue."""
    _check(options)
    os.umask(0o077)
    with ExitStack() as opened:
        listening = opened.enter_context(_listen(options))
        directory = open_directory(options.state)
        opened.callback(os.close, directory.lock("service"))
        header = _header(options)
        if is_new(directory):
            make(directory, header)
        else:
            requested, header = header, stored_header(directory)
            for option in _differing_options(requested, header):
                print(f"fairlead: {option} differs from the first start and is ignored", file=sys.stderr, flush=True)
            _change_cluster(options, directory, header)
        _run(options, directory, header, listening)


def changes_at_start(state: Path, cluster: Cluster) -> list[str]:
    """What a start with this cluster file would change, as sentences; empty for a new directory. Nothing is written."""
    directory = StateDirectory(state)
    return list(difference(directory, stored_header(directory), cluster).lines) if directory.marker.exists() else []


def _change_cluster(options: ServiceOptions, directory: StateDirectory, stored: Header) -> None:
    """Request the nodes that the cluster file adds or removes since the last start."""
    changed = difference(directory, stored, options.cluster)
    for line in changed.lines:
        print(f"fairlead: the cluster changes: {line}", file=sys.stderr, flush=True)
    if not changed.requests:
        return
    with closing(open_writer(directory.requests, REQUESTS)) as connection:
        request_queue.append_all(connection, "cluster file", changed.requests)
    remember(directory, options.cluster)


def _run(options: ServiceOptions, directory: StateDirectory, header: Header, listening: socket.socket) -> None:
    connection = open_writer(directory.requests, REQUESTS)
    changes.forget_old_keys(connection)
    tokens = Tokens(connection)
    try:
        _check_credentials(options, tokens, _url(listening))
    except FairleadError:
        connection.close()
        raise
    ends: list[str] = []
    server: list[uvicorn.Server] = []

    def gave_up(reason: str) -> None:
        ends.append(reason)
        for running in server:
            running.should_exit = True

    supervisor = Supervisor(directory, options.plan, gave_up, options.patience)
    reader = ENGINES[options.plan.engine].open_reader(directory.path)
    writer, reads = Writer(connection, supervisor.wake), Reads(directory, reader)
    try:
        supervisor.start()
        from fairlead.service.api.server import ServiceContext, build_server  # while the scheduler starts

        _wait_until_ready(supervisor, ends)
        listening.listen()  # from now on early callers wait
        _welcome(options, directory, tokens, writer, _url(listening))
        _set_policy(options, reads, writer)
        estimator = open_state(header).estimator
        service = ServiceContext(
            directory, header.cluster, estimator, writer, tokens, reads, options.limits, supervisor.state
        )
        server.append(build_server(service))
        if not ends:
            server[0].run(sockets=[listening])
    finally:
        supervisor.stop()
        writer.close()
        reads.close()
    if ends:
        raise FairleadError(ends[0])


def _wait_until_ready(supervisor: Supervisor, ends: list[str]) -> None:
    """Wait without a limit: a long log or a busy machine takes time, and the supervisor gives up on a scheduler that
    keeps dying.
    """
    while not supervisor.wait_until_ready(_WAIT_MESSAGE_S):
        if ends:
            raise StoreError(ends[0])
        print("fairlead: the scheduler is still starting", file=sys.stderr, flush=True)


def _check(options: ServiceOptions) -> None:
    choose("engine", options.plan.engine, ENGINES)
    if options.policy is not None:
        tried(options.policy, {})
    local = options.host == "localhost"
    with suppress(ValueError):
        local = local or ipaddress.ip_address(options.host).is_loopback
    if not local and not options.remote:
        raise InputError(
            f"--host {options.host} can be reached from other machines; that needs --allow-remote, and a proxy with TLS in "
            "front of it, because tokens are sent unencrypted"
        )


def _listen(options: ServiceOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # With an explicit protocol asyncio sends small answers at once; otherwise they wait 40 ms for an acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((options.host, options.port))
    except OSError as error:
        listening.close()
        raise InputError(
            f"cannot listen on {options.host}:{options.port} ({error.strerror}); if a service is running there already, choose another port with --port"
        ) from None
    listening.set_inheritable(False)
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _header(options: ServiceOptions) -> Header:
    policy = find_round_policy(options.policy or DEFAULT_POLICY)
    return Header(
        cluster=options.cluster,
        profile=options.profile,  # also for types that may join later
        restart_s=options.restart_s,
        policy=policy.name,
        parameters={},
        settings=settings_to_json(options.plan.settings),
        tenant_weight={},
        more={"version": __version__, "sensing": options.sensing, "unmeasured": True, "engine": options.plan.engine},
    )


def _differing_options(requested: Header, stored: Header) -> list[str]:
    """Options that differ from the state directory, whose values apply because its log was written with them."""
    profiles = [
        header_to_json(replace(one, profile=one.profile.restricted_to(one.profile.models, stored.cluster.gpu)))[
            "profile"
        ]
        for one in (requested, stored)  # old headers have only the speeds of their first types
    ]
    values = {
        "--throughputs": tuple(profiles),
        "--restart-cost": (requested.restart_s, stored.restart_s),
        "sensing": (requested.more.get("sensing"), stored.more.get("sensing")),
    }
    return [option for option, (now, before) in values.items() if now != before]


def _check_credentials(options: ServiceOptions, tokens: Tokens, url: str) -> None:
    """Refuse to start if a new admin token would overwrite this user's token for another service."""
    if not options.new_token and _admins(tokens):
        return
    saved = Client.saved_in(credentials_path())
    parts = (saved.token or "").split("_")
    ours = saved.token is None or saved.url == url or (len(parts) > 1 and tokens.get(parts[1]) is not None)
    if not ours:
        raise InputError(
            f"{credentials_path()} has the token of another service ({saved.url}), and a new admin token must be saved; "
            f"name another file with {CREDENTIALS}, or remove that one if the service is gone"
        )


def _admins(tokens: Tokens) -> list[Token]:
    return [token for token in tokens.all() if token.role is Role.ADMIN and token.valid_at(time.time())]


def _welcome(options: ServiceOptions, directory: StateDirectory, tokens: Tokens, writer: Writer, url: str) -> None:
    """Print the address, and create an admin token if there is no valid one."""
    print(f"fairlead {__version__} listens on {url}, state in {directory.path}", flush=True)
    if options.new_token or not _admins(tokens):
        shown, token = new_token("admin", Role.ADMIN, None, time.time(), ADMIN_LIFETIME_S)
        writer.write_now(changes.create_token("serve", token))
        tokens.remember(token)
        path = save_credentials(url, shown)
        if sys.stdout.isatty():  # never into a log file
            print(f"admin token, shown once: {shown}", flush=True)
        print(f"an admin token was saved for this user's commands in {path}", flush=True)
        return
    with suppress(FairleadError):
        saved = Client.from_environment()
        if saved.token and saved.url != url and _is_ours(tokens, saved.token):
            save_credentials(url, saved.token)


def _is_ours(tokens: Tokens, shown: str) -> Token | None:
    return tokens.find(shown, time.time())


def _set_policy(options: ServiceOptions, reads: Reads, writer: Writer) -> None:
    """Request the policy of the command line if it is not the current one."""
    name = options.policy
    if name is not None and name != reads.policy()[0]:
        writer.write_now(changes.ask("serve", SetPolicy(name), changes.AuditEntry("policy.set", name)))
