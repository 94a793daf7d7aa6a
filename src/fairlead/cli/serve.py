from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import Aliases, Cluster, MeasureNew, Throughputs, gpu_aliases, open_profile, parse_pairs
from fairlead.engines.registry import ENGINES
from fairlead.model.errors import InputError
from fairlead.model.units import parse_duration
from fairlead.model.words import did_you_mean


def serve(
    cluster: Cluster,
    state: Annotated[
        Path, typer.Option(help="Directory of all durable state; created at the first start, readable only by you.")
    ] = Path("fairlead-state"),
    policy: Annotated[
        str | None,
        typer.Option(help="A registered policy (default: the last one, initially oef-coop).", metavar="NAME"),
    ] = None,
    engine: Annotated[
        str, typer.Option(help=f"{'; '.join(f'{name}: {kind.sentence}' for name, kind in ENGINES.items())}.")
    ] = "local",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 7411,
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Allow an address that other machines can reach; put TLS in front of it."),
    ] = False,
    round_: Annotated[
        str, typer.Option("--round", help="Time between two scheduling rounds.", metavar="DURATION")
    ] = "60s",
    min_run: Annotated[
        str, typer.Option(help="A job keeps its GPUs for at least this long.", metavar="DURATION")
    ] = "60s",
    restart_cost: Annotated[
        str | None, typer.Option(help="What a restart costs a job (default: by model).", metavar="DURATION")
    ] = None,
    user: Annotated[str | None, typer.Option(help="User that local jobs run as, if the service runs as root.")] = None,
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
    measure_new: MeasureNew = None,
    throughputs: Throughputs = None,
    alias: Aliases = None,
    new_token: Annotated[bool, typer.Option("--new-token", help="Create another admin token.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Print what the cluster file would change, and exit.")] = False,
) -> None:
    """Run the scheduler as a durable service with a REST API until a signal ends it. Jobs keep running after that."""
    from fairlead.service.process.daemon import ServiceOptions, changes_at_start
    from fairlead.service.process.daemon import serve as run
    from fairlead.service.process.scheduler import SchedulerOptions
    from fairlead.traces.clusters import read_cluster

    hardware = read_cluster(cluster, gpu_aliases(alias))
    if check:
        for line in changes_at_start(state, hardware) or ["nothing would change"]:
            typer.echo(line)
        return
    run(
        ServiceOptions(
            cluster=hardware,
            profile=open_profile(throughputs),
            state=state,
            host=host,
            port=port,
            remote=allow_remote,
            policy=policy,
            plan=SchedulerOptions(
                engine,
                parse_duration(round_),
                parse_duration(min_run),
                user,
                emulate,
                _node_paces(node_pace or [], hardware.nodes),
                warm_standbys,
                warm_memory,
                warm_contexts,
                None if measure_new is None else parse_duration(measure_new),
            ),
            restart_s=None if restart_cost is None else parse_duration(restart_cost),
            new_token=new_token,
        )
    )


def _node_paces(pairs: list[str], nodes: Sequence[str]) -> dict[str, float]:
    """Speeds of emulated nodes relative to their type."""
    paces: dict[str, float] = {}
    for node, text in parse_pairs(pairs, "--node-pace").items():
        if node not in nodes:
            raise InputError(f'--node-pace: node "{node}" is not in the cluster; {did_you_mean(node, nodes)}')
        try:
            paces[node] = float(text)
        except ValueError:
            paces[node] = math.nan
        if not 0 < paces[node] <= 1:
            raise InputError(f"--node-pace {node}={text}: wanted a number above 0 and up to 1, such as {node}=0.5")
    return paces
