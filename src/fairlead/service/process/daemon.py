"""`fairlead serve`: the API process, which supervises the scheduler process."""

from __future__ import annotations

import ipaddress
import math
import os
import socket
import sys
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead import __version__
from fairlead.engines.registry import ENGINES
from fairlead.engines.requests import Command, SetPolicy
from fairlead.engines.slurm.lease_runner import LOOK_S
from fairlead.engines.slurm.shared_looks import NAME, LookReader
from fairlead.model.cluster import Cluster
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.words import choose, counted
from fairlead.policies import find_round_policy
from fairlead.rates.profile import Profile
from fairlead.rounds.journal import Header, header_to_json
from fairlead.rounds.loop import settings_to_json
from fairlead.rounds.records import spec_from_json
from fairlead.service.api.limits import Limits
from fairlead.service.client import CREDENTIALS, Client, credentials_path, save_credentials
from fairlead.service.live_policies import REGISTERED, PolicyCard, describe_files
from fairlead.service.process.ending import ends_in_time
from fairlead.service.process.estimating import Estimating
from fairlead.service.process.scheduler import SchedulerOptions
from fairlead.service.process.slurm_intake import SlurmIntake
from fairlead.service.process.supervisor import Patience, Supervisor
from fairlead.service.process.telemetry import Telemetry, TelemetryOptions
from fairlead.service.process.upkeep import Upkeep
from fairlead.service.store import changes, request_queue
from fairlead.service.store.belonging import continue_or_renew
from fairlead.service.store.cluster_file import difference, remember
from fairlead.service.store.commits import FencedError, begin_epoch
from fairlead.service.store.database import DATABASE_ERROR, DiskFullError, StoreError, open_writer
from fairlead.service.store.directory import StateDirectory, is_new, make, open_directory, stored_header
from fairlead.service.store.reads import Reads
from fairlead.service.store.tables import REQUESTS
from fairlead.service.store.tokens import Role, Token, Tokens, new_token
from fairlead.service.store.upgrade import planned, upgrade
from fairlead.service.store.writer import Writer
from fairlead.service.telemetry.log_lines import JsonOutput, stderr_as_json
from fairlead.studies.journals.folding import open_state

if TYPE_CHECKING:
    import uvicorn

DEFAULT_POLICY = "oef-coop"
ADMIN_LIFETIME_S = 365 * 86400.0
SHORTEST_DEADLINE_S = 0.5  # of a decision
_PORT_S = 10.0  # in which a service that ends leaves its port
_WAIT_MESSAGE_S = 30.0  # between two messages that the scheduler is still starting


@dataclass(frozen=True)
class ServiceOptions:
    cluster: Cluster
    profile: Profile
    state: Path
    host: str = "127.0.0.1"
    port: int = 7411  # 0: any free port
    remote: bool = False  # may listen on an address that other machines can reach
    proxies: tuple[str, ...] = ()  # addresses whose headers about the client's address are believed
    policy: str | None = None  # None: the last one, initially the default
    plan: SchedulerOptions = field(default_factory=SchedulerOptions)
    restart_s: float | None = None  # overrides every model's restart cost
    sensing: str = "three-layer"
    new_token: bool = False  # create another admin token
    standby: bool = False  # wait until no other service uses the state directory, then take over
    limits: Limits = field(default_factory=Limits)
    patience: Patience = field(default_factory=Patience)
    telemetry: TelemetryOptions = field(default_factory=TelemetryOptions)
    estimates: float = 0.1  # part of one CPU's time for start estimates; 0: none are made


def serve(options: ServiceOptions) -> None:
    """Run the service until a signal ends it; jobs keep running. FairleadError means that it cannot start or continue."""
    _check(options)
    own = describe_files(options.plan.policy_files)
    if options.policy is not None and options.policy not in own:
        find_round_policy(options.policy)
    os.umask(0o077)
    with ExitStack() as opened:
        output = opened.enter_context(stderr_as_json()) if options.telemetry.json_log else None
        if options.standby:
            directory = open_directory(options.state)
            opened.callback(os.close, _wait_for_turn(directory))
            listening = opened.enter_context(_listen_soon(options))
        else:
            listening = opened.enter_context(_listen(options))
            directory = open_directory(options.state)
            opened.callback(os.close, directory.lock("service"))
        header = _header(options)
        if is_new(directory):
            make(directory, header)
        else:
            for line in (*upgrade(directory), *_renewed(options, directory)):
                print(f"fairlead: {line}", file=sys.stderr, flush=True)
            requested, header = header, stored_header(directory)
            _check_engine(options, header)
            for option in _differing_options(requested, header):
                print(f"fairlead: {option} differs from the first start and is ignored", file=sys.stderr, flush=True)
            _change_cluster(options, directory, header)
        _run(options, directory, header, listening, own, output)


def _wait_for_turn(directory: StateDirectory) -> int:
    """The lock of the service, once no other one has it. What a start needs is imported before that."""
    print(f"fairlead: on standby until no other service uses {directory.path}", file=sys.stderr, flush=True)
    lock = directory.lock("service", math.inf)
    print(f"fairlead: takes over {directory.path}", file=sys.stderr, flush=True)
    return lock


def _listen_soon(options: ServiceOptions) -> socket.socket:
    """Listen on the port of the service that has just ended, which may need a moment to leave it."""
    give_up_s = time.monotonic() + _PORT_S
    while True:
        try:
            return _listen(options)
        except InputError:
            if time.monotonic() >= give_up_s:
                raise
            time.sleep(0.02)


def _renewed(options: ServiceOptions, directory: StateDirectory) -> list[str]:
    """Refuse files that do not belong together; the sentence about a new incarnation, if one begins."""
    reason = continue_or_renew(directory, ENGINES[options.plan.engine].open_reader(directory.path).jobs())
    return [] if reason is None else [f"a new incarnation begins: {reason}"]


def changes_at_start(state: Path, cluster: Cluster) -> list[str]:
    """What a start with this cluster file would change, as sentences. Nothing is written."""
    directory = StateDirectory(state)
    if state.exists() and not is_new(directory):
        return [*planned(directory), *difference(directory, stored_header(directory), cluster).lines]
    nodes, gpus = counted(len(cluster.nodes), "node"), counted(int(cluster.capacity.sum()), "GPU")
    return [f"there is no state in {state} yet: a start would create it, with {nodes} and {gpus}"]


def _check_engine(options: ServiceOptions, stored: Header) -> None:
    """Refuse another engine than that of the first start: it would know nothing about the leases that may run."""
    shadowed = bool(stored.more.get("shadow", False))
    if shadowed != options.plan.shadow:
        one, other = ("with", "without") if shadowed else ("without", "with")
        raise InputError(
            f"{options.state} belongs to a service {one} --shadow, and this one is {other} it; "
            "choose another --state directory"
        )
    steered = stored.more.get("steer", "")
    if steered != options.plan.steer:
        wanted = f"--steer {steered}" if steered else "no --steer"
        raise InputError(
            f"{options.state} was made with {wanted}; start like that, or choose another --state directory"
        )
    before = stored.more.get("engine", options.plan.engine)
    if before != options.plan.engine:
        raise InputError(
            f"{options.state} was made with --engine {before}, whose leases --engine {options.plan.engine} does not know; "
            f"start with --engine {before}, or choose another --state directory"
        )


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


def _run(
    options: ServiceOptions,
    directory: StateDirectory,
    header: Header,
    listening: socket.socket,
    own: dict[str, PolicyCard],
    output: JsonOutput | None,
) -> None:
    connection = open_writer(directory.requests, REQUESTS)
    epoch = begin_epoch(connection)
    changes.forget_old_keys(connection)
    tokens = Tokens(connection)
    try:
        _check_credentials(options, tokens, _url(listening))
    except FairleadError:
        connection.close()
        raise
    ends: list[str] = []
    server: list[uvicorn.Server] = []

    def end_server() -> bool:
        for running in server:
            running.should_exit = True
        return bool(server)

    def gave_up(reason: str) -> None:
        ends.append(reason)
        end_server()

    supervisor = Supervisor(directory, options.plan, gave_up, options.patience)
    reader = ENGINES[options.plan.engine].open_reader(directory.path)
    writer, reads = Writer(connection, supervisor.wake, gave_up), Reads(directory, reader)
    supervisor.watched = partial(_take_watched, writer)
    upkeep = Upkeep(directory, options.plan.keep_s, epoch, reads.last_seq)
    part = 0.0 if options.plan.shadow else options.estimates  # Slurm decides there, and its future is not simulated
    estimating = Estimating(directory, part, reads.waiting, reads.last_seq, options.plan.policy_files)
    with ends_in_time(end_server, supervisor.kill), ExitStack() as ending:
        metrics_socket = _metrics_socket(options, ending)
        for end in (reads.close, writer.close, upkeep.stop, estimating.stop, supervisor.close):  # the last one first
            ending.callback(end)
        supervisor.start()
        from fairlead.service.api.server import ServiceContext, build_server, serve_on  # while the scheduler starts
        from fairlead.service.web.site import build_site

        _wait_until_ready(supervisor, ends)
        listening.listen()  # from now on early callers wait
        _welcome(options, directory, tokens, writer, _url(listening))
        _set_policy(options, reads, writer)
        estimator = open_state(header).estimator
        intake = _intake(options, directory, writer, reads)
        telemetry = Telemetry(
            options.telemetry, directory, header, estimator, reads, supervisor.figures, writer, output
        )
        ending.callback(telemetry.stop)
        service = ServiceContext(
            directory,
            header.cluster,
            estimator,
            writer,
            tokens,
            reads,
            options.limits,
            supervisor.state if intake is None else lambda: intake.added_to(supervisor.state()),
            took_s=supervisor.took_s,
            policy_files=options.plan.policy_files,
            own_policies=own,
            only_watches=options.plan.shadow,
            steers=bool(options.plan.steer),
            metrics=telemetry.metrics.text,
            metrics_port=None if metrics_socket is None else metrics_socket.getsockname()[1],
            no_estimates=_no_estimates(options),
        )
        if intake is not None:
            ending.callback(intake.stop)
            intake.start()
        server.append(build_server(service, options.proxies, build_site))
        upkeep.start()
        estimating.start()
        telemetry.start()
        if not ends:
            serve_on(server[0], listening, *([] if metrics_socket is None else [metrics_socket]))
    if ends:
        raise FairleadError(ends[0])


def _intake(options: ServiceOptions, directory: StateDirectory, writer: Writer, reads: Reads) -> SlurmIntake | None:
    partition = options.plan.steered_partition
    if not options.plan.steer:
        return None
    shared = LookReader(directory.path / NAME, partition.name)
    return SlurmIntake(partition, writer, reads, look_s=options.plan.look_s or LOOK_S, shared=shared)


def _take_watched(writer: Writer, rows: list[dict[str, Any]]) -> None:
    """Write down jobs of another scheduler, of which the scheduler process is notified.

    What cannot be written is announced again later: the thread that calls this also keeps the scheduler going.
    """
    jobs = [request_queue.Submission(row["name"], spec_from_json(row["spec"]), Command("")) for row in rows]
    try:
        writer.write_now(lambda connection: request_queue.submit_watched(connection, "slurm", jobs))
    except (DiskFullError, FencedError, DATABASE_ERROR) as error:
        print(f"fairlead: {counted(len(jobs), 'new job')} cannot be stored yet: {error}", file=sys.stderr, flush=True)


def _no_estimates(options: ServiceOptions) -> str | None:
    """Why no start estimates are made, if so."""
    if options.plan.shadow:
        return "this service only watches Slurm, which decides itself"
    return None if options.estimates > 0 else "estimates are switched off; `fairlead serve --estimates 10%` makes them"


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
    if options.plan.decide_within_s < SHORTEST_DEADLINE_S:
        raise InputError(f"--decide-within {options.plan.decide_within_s:g}s: wanted at least {SHORTEST_DEADLINE_S:g}s")
    local = options.host == "localhost"
    with suppress(ValueError):
        local = local or ipaddress.ip_address(options.host).is_loopback
    if not local and not options.remote:
        raise InputError(
            f"--host {options.host} can be reached from other machines; that needs --allow-remote, and a proxy with TLS in "
            "front of it, because tokens are sent unencrypted"
        )


def _listen(options: ServiceOptions, option: str = "--port") -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # With an explicit protocol asyncio sends small answers at once; otherwise they wait 40 ms for an acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((options.host, options.port))
    except OSError as error:
        listening.close()
        raise InputError(
            f"cannot listen on {options.host}:{options.port} ({error.strerror}); if a service is running there already, choose another port with {option}"
        ) from None
    listening.set_inheritable(False)
    return listening


def _metrics_socket(options: ServiceOptions, ending: ExitStack) -> socket.socket | None:
    """The port for metrics on this machine alone, whatever --host is; None if there is none."""
    if options.telemetry.metrics_port is None:
        return None
    if options.telemetry.metrics_port == options.port != 0:
        raise InputError(f"--metrics-port {options.port} is the port of the service itself; choose another one")
    metrics = replace(options, host="127.0.0.1", port=options.telemetry.metrics_port)
    return ending.enter_context(_listen(metrics, "--metrics-port"))


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _header(options: ServiceOptions) -> Header:
    return Header(
        cluster=options.cluster,
        profile=options.profile,  # also for types that may join later
        restart_s=options.restart_s,
        policy=options.policy if options.policy in REGISTERED else DEFAULT_POLICY,
        parameters={},
        settings=settings_to_json(options.plan.settings),
        tenant_weight={},
        more={
            "version": __version__,
            "sensing": options.sensing,
            "unmeasured": True,
            "engine": options.plan.engine,
            **({"shadow": True} if options.plan.shadow else {}),
            **({"steer": options.plan.steer} if options.plan.steer else {}),
        },
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
    before = reads.policy()[0]
    if name is not None and name != before:
        print(f"fairlead: --policy replaces {before} by {name}", file=sys.stderr, flush=True)
        writer.write_now(changes.ask("serve", SetPolicy(name), changes.AuditEntry("policy.set", name)))
