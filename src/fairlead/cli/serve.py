from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import (
    Aliases,
    CheckShare,
    MeasureNew,
    PreemptionLimit,
    TenantPreemptionLimit,
    Throughputs,
    gpu_aliases,
    gpu_time,
    open_profile,
    options_set,
    parse_pairs,
    positive_duration,
)
from fairlead.cli.output import print_lines
from fairlead.engines.registry import ENGINES, RunnerOptions
from fairlead.model.errors import InputError
from fairlead.model.trial_jobs import CHECK_SHARE
from fairlead.model.units import parse_duration, parse_memory
from fairlead.model.words import choose, did_you_mean

if TYPE_CHECKING:
    from fairlead.model.cluster import Cluster
    from fairlead.service.telemetry.notices import Channel

_OF_LOCAL = ("user", "max_memory", "max_processes", "node_pace", "warm_standbys", "warm_memory", "warm_contexts")
_OF_SLURM, _OF_RAY = ("slurm_option", "look"), ("address",)
_NO_EFFECT = {  # options that an engine does not have
    "local": (*_OF_SLURM, *_OF_RAY),
    "slurm": (*_OF_LOCAL, *_OF_RAY),
    "ray": (*_OF_LOCAL, *_OF_SLURM),
    "pretend": ("emulate", *_OF_LOCAL, *_OF_SLURM, *_OF_RAY),
}
LEAST_KEEP_S = 3600.0  # a shorter time would archive every few minutes


def serve(
    context: typer.Context,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Cluster file, or GPUs by type: v100:36,p100:36x8. An engine that knows its nodes needs none.",
            metavar="FILE|TYPES",
        ),
    ] = None,
    state: Annotated[
        Path, typer.Option(help="Directory of all durable state; created at the first start, readable only by you.")
    ] = Path("fairlead-state"),
    policy: Annotated[
        str | None,
        typer.Option(help="A policy by name (default: the last one, initially oef-coop).", metavar="NAME"),
    ] = None,
    policy_file: Annotated[
        list[str] | None,
        typer.Option(
            help="A policy of your own that the service may use, by its name; repeatable.", metavar="FILE.py:NAME"
        ),
    ] = None,
    decide_within: Annotated[
        str,
        typer.Option(help="Time for a decision; a policy that needs more is replaced.", metavar="DURATION"),
    ] = "30s",
    policy_memory: Annotated[float, typer.Option(min=0.1, help="Memory that a policy may use.", metavar="GIB")] = 8.0,
    engine: Annotated[
        str, typer.Option(help=f"{'; '.join(f'{name}: {kind.sentence}' for name, kind in ENGINES.items())}.")
    ] = "local",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 7411,
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Allow an address that other machines can reach; put TLS in front of it."),
    ] = False,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="A proxy in front of the service, which says for whom it asks (X-Forwarded-For); repeatable.",
            metavar="ADDRESS",
        ),
    ] = None,
    round_: Annotated[
        str, typer.Option("--round", help="Time between two scheduling rounds.", metavar="DURATION")
    ] = "60s",
    min_run: Annotated[
        str, typer.Option(help="A job keeps its GPUs for at least this long.", metavar="DURATION")
    ] = "60s",
    preemption_limit: PreemptionLimit = None,
    tenant_preemption_limit: TenantPreemptionLimit = None,
    restart_cost: Annotated[
        str | None,
        typer.Option(
            help="What a restart costs every job; without it, restarts are measured, and the profile is used until then.",
            metavar="DURATION",
        ),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option(
            help="User that local jobs run as, of one tenant or of all others, if the service runs as root; repeatable.",
            metavar="[TENANT=]NAME",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(help="Memory that the processes of a local job may use together, such as 64GiB.", metavar="SIZE"),
    ] = None,
    max_processes: Annotated[
        int | None, typer.Option(min=2, help="Processes and threads that a local job may have at a time.")
    ] = None,
    emulate: Annotated[bool, typer.Option("--emulate", help="Emulate GPUs even if this machine has some.")] = False,
    node_pace: Annotated[
        list[str] | None,
        typer.Option(help="Speed of an emulated node relative to its type; repeatable.", metavar="NODE=FACTOR"),
    ] = None,
    warm_standbys: Annotated[
        int,
        typer.Option(min=0, max=1000, help="Processes that wait with their imports done, for jobs that ask for it."),
    ] = 2,
    warm_memory: Annotated[
        float, typer.Option(min=0.1, help="Memory that all of them together may use.", metavar="GIB")
    ] = 4.0,
    warm_contexts: Annotated[
        bool, typer.Option("--warm-contexts", help="Let them open CUDA contexts, which take memory of the GPUs.")
    ] = False,
    slurm_option: Annotated[
        list[str] | None,
        typer.Option(help="Option of sbatch for every job, such as --partition=gpu; repeatable.", metavar="OPTION"),
    ] = None,
    address: Annotated[
        str, typer.Option(help="Address of the head of a Ray cluster, with --engine ray.", metavar="HOST:PORT")
    ] = "",
    shadow: Annotated[
        bool,
        typer.Option("--shadow", help="Only watch the Slurm cluster: record what it does, advise, change nothing."),
    ] = False,
    steer: Annotated[
        str,
        typer.Option(help="Start and stop the jobs that users submit to this partition of Slurm.", metavar="PARTITION"),
    ] = "",
    models: Annotated[
        str | None,
        typer.Option(help="File that maps patterns of job names to models, with --shadow or --steer.", metavar="FILE"),
    ] = None,
    look: Annotated[
        str | None,
        typer.Option(help="Time between two looks at Slurm: 5s, or 10s with --shadow.", metavar="DURATION"),
    ] = None,
    keep: Annotated[
        str,
        typer.Option(help="Archive ended jobs and old records after this time; forever: never.", metavar="DURATION"),
    ] = "30d",
    estimates: Annotated[
        str,
        typer.Option(
            help="Part of one CPU's time for estimating when waiting jobs start; off: none.", metavar="PERCENT|off"
        ),
    ] = "10%",
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of 127.0.0.1 on which metrics need no token; 0 chooses a free one.",
            metavar="PORT",
        ),
    ] = None,
    log_format: Annotated[
        str,
        typer.Option(
            help="What standard error has: text, or json with a line for each decision and change.", metavar="text|json"
        ),
    ] = "text",
    webhook: Annotated[
        str | None,
        typer.Option(help="Address to which starts, ends and pre-emptions of jobs are posted.", metavar="URL"),
    ] = None,
    webhook_secret: Annotated[
        Path | None, typer.Option(help="File with the secret that signs them; needed with --webhook.", metavar="FILE")
    ] = None,
    event_command: Annotated[
        str | None, typer.Option(help="Command that is run for each of these events.", metavar="COMMAND")
    ] = None,
    measure_new: MeasureNew = None,
    check_share: CheckShare = CHECK_SHARE,
    throughputs: Throughputs = None,
    alias: Aliases = None,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait until no other service uses the state directory, then take over."),
    ] = False,
    new_token: Annotated[bool, typer.Option("--new-token", help="Create another admin token.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Print what a start would change, and exit.")] = False,
) -> None:
    """Run the scheduler as a durable service with a REST API until a signal ends it. Jobs keep running after that."""
    from fairlead.service.process.daemon import ServiceOptions, changes_at_start
    from fairlead.service.process.daemon import serve as run
    from fairlead.service.process.scheduler import SchedulerOptions
    from fairlead.service.process.telemetry import TelemetryOptions
    from fairlead.studies.policy_lab.plugins import absolute_reference

    _refuse_options_without_effect(engine, options_set(context))
    _check_shadow(shadow, engine, options_set(context))
    _check_steer(steer, engine, options_set(context))
    if engine == "ray" and not address:
        raise InputError("--engine ray needs the address of Ray's head; add --address HOST:PORT, as of `ray start`")
    known = RunnerOptions(steer=steer, address=address, aliases=gpu_aliases(alias))
    hardware = _hardware(cluster, engine, known, state)
    if check:
        print_lines(*(changes_at_start(state, hardware) or ["nothing would change"]))
        return
    run(
        ServiceOptions(
            cluster=hardware,
            profile=open_profile(throughputs),
            state=state,
            host=host,
            port=port,
            remote=allow_remote,
            proxies=tuple(proxy or ()),
            policy=policy,
            plan=SchedulerOptions(
                engine,
                positive_duration("--round", round_),
                parse_duration(min_run, "--min-run"),
                tuple(user or ()),
                emulate,
                _node_paces(node_pace or [], hardware.nodes),
                warm_standbys,
                warm_memory,
                warm_contexts,
                None if measure_new is None else parse_duration(measure_new, "--measure-new"),
                tuple(slurm_option or ()),
                None if max_memory is None else parse_memory(max_memory),
                max_processes,
                keep_s=_keep_s(keep),
                check_share=check_share,
                preemption_gpu_s=gpu_time("--preemption-limit", preemption_limit),
                tenant_preemption_gpu_s=gpu_time("--tenant-preemption-limit", tenant_preemption_limit),
                decide_within_s=parse_duration(decide_within, "--decide-within"),
                policy_memory_gib=policy_memory,
                policy_files=tuple(absolute_reference(file) for file in policy_file or ()),
                shadow=shadow,
                steer=steer,
                aliases=dict(gpu_aliases(alias)),
                job_models=[] if models is None else _job_models(models),
                look_s=None if look is None else positive_duration("--look", look),
                address=address,
                fixed_cluster=cluster is not None,
            ),
            restart_s=None if restart_cost is None else parse_duration(restart_cost, "--restart-cost"),
            new_token=new_token,
            standby=standby,
            estimates=_estimates(estimates),
            telemetry=TelemetryOptions(
                metrics_port=metrics_port,
                json_log=choose("log format", log_format, ("text", "json")) == "json",
                channels=_channels(webhook, webhook_secret, event_command),
            ),
        )
    )


def _channels(url: str | None, secret: Path | None, command: str | None) -> list[Channel]:
    """Where notices go."""
    from fairlead.service.telemetry import channels

    if (url is None) != (secret is None):
        raise InputError("--webhook and --webhook-secret need each other: notices are always signed")
    found = [] if url is None or secret is None else [channels.webhook(url, channels.read_secret(secret))]
    return found if command is None else [*found, channels.command(command)]


def _estimates(text: str) -> float:
    """The part of one CPU's time in `10%`."""
    if text.strip().lower() == "off":
        return 0.0
    number = text.strip().removesuffix("%")
    try:
        percent = float(number)
    except ValueError:
        percent = math.nan
    if not 0 < percent <= 100:
        raise InputError(f'--estimates "{text}" is not a percentage of one CPU, such as 10%, or off')
    return percent / 100


def _hardware(cluster: str | None, engine: str, options: RunnerOptions, state: Path) -> Cluster:
    """The cluster of the command line, or the one that the engine knows; if nodes join, it is asked at the first start."""
    from fairlead.service.store.cluster_file import known_cluster
    from fairlead.traces.clusters import read_cluster

    if cluster is not None:
        return read_cluster(cluster, options.aliases)
    kind = ENGINES[choose("engine", engine, ENGINES)]
    before = known_cluster(state) if kind.nodes_join else None
    if before is not None:
        return before
    import_cluster = kind.import_cluster
    if import_cluster is None:
        raise InputError(
            f"--engine {engine} does not know its nodes; name them with --cluster FILE or --cluster v100:8"
        )
    return import_cluster(options)


def _refuse_options_without_effect(engine: str, names: set[str]) -> None:
    """Refuse options of another engine."""
    ignored = [f"--{name.replace('_', '-')}" for name in _NO_EFFECT.get(engine, ()) if name in names]
    if ignored:
        raise InputError(f"{', '.join(ignored)}: no effect with --engine {engine}; leave it out")


# Options that mean nothing where nothing is started.
_NOT_IN_SHADOW = (
    *("cluster", "policy_file", "emulate", "slurm_option", "measure_new", "check_share"),
    *("decide_within", "policy_memory", "estimates"),
)


def _check_shadow(shadow: bool, engine: str, names: set[str]) -> None:
    """Refuse options that have no effect with or without --shadow."""
    if shadow and engine != "slurm":
        raise InputError(f"--shadow watches a Slurm cluster, and this is --engine {engine}; add --engine slurm")
    refused = _NOT_IN_SHADOW if shadow else () if "steer" in names else ("models",)
    ignored = [f"--{name.replace('_', '-')}" for name in refused if name in names]
    if ignored:
        raise InputError(f"{', '.join(ignored)}: no effect {'with' if shadow else 'without'} --shadow; leave it out")


# Options of leases that are Slurm jobs of their own.
_NOT_IN_STEERING = ("shadow", "slurm_option", "emulate")


def _check_steer(steer: str, engine: str, names: set[str]) -> None:
    """Refuse options that mean nothing for jobs that belong to Slurm."""
    if steer and engine != "slurm":
        raise InputError(f"--steer names a partition of Slurm, and this is --engine {engine}; add --engine slurm")
    ignored = [f"--{name.replace('_', '-')}" for name in _NOT_IN_STEERING if steer and name in names]
    if ignored:
        raise InputError(f"{', '.join(ignored)}: no effect with --steer; leave it out")


def _job_models(path: str) -> list[tuple[str, str]]:
    from fairlead.traces.model_names import read_model_names

    return list(read_model_names(path))


def _keep_s(text: str) -> float:
    keep_s = math.inf if text == "forever" else parse_duration(text, "--keep")
    if keep_s < LEAST_KEEP_S:
        raise InputError(f'--keep {text}: wanted at least 1h, such as 30d, or "forever"')
    return keep_s


def _node_paces(pairs: list[str], nodes: Sequence[str]) -> dict[str, float]:
    """Speeds of emulated nodes relative to their type."""
    paces: dict[str, float] = {}
    for node, text in parse_pairs(pairs, "--node-pace", "v100-2=0.5").items():
        if node not in nodes:
            raise InputError(f'--node-pace: node "{node}" is not in the cluster; {did_you_mean(node, nodes)}')
        try:
            paces[node] = float(text)
        except ValueError:
            paces[node] = math.nan
        if not 0 < paces[node] <= 1:
            raise InputError(f"--node-pace {node}={text}: wanted a number above 0 and up to 1, such as {node}=0.5")
    return paces
