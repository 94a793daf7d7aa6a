"""Commands for operators of a cluster: nodes, tenants, share, policy, token, journal, top."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.fairness import print_promises
from fairlead.cli.jobs import JOB_COLUMNS, job_row, print_watching, when
from fairlead.cli.options import parse_pairs
from fairlead.cli.output import Format, Output, cell, print_json, print_lines, print_table, write_stream
from fairlead.model.errors import InputError
from fairlead.model.quota_text import parse_quota
from fairlead.model.units import format_bytes, format_number, parse_bytes, parse_whole
from fairlead.service.client import Client, in_path, save_credentials

tenants = typer.Typer(help="Weights, quotas and limits of tenants.", no_args_is_help=False, invoke_without_command=True)
nodes = typer.Typer(help="Nodes: list, drain, resume, add, remove.", invoke_without_command=True)
policy = typer.Typer(help="The policy that decides: show it, or switch to another.", invoke_without_command=True)
token = typer.Typer(help="Tokens: who may do what.", no_args_is_help=True)


# ---- nodes ----------------------------------------------------------------------------------------------------------


@nodes.callback()
def list_nodes(context: typer.Context, output: Output = Format.table) -> None:
    """List the nodes and their free GPUs."""
    if context.invoked_subcommand:
        return
    client = Client.from_environment()
    answer = client.get("/nodes")
    if output is Format.json:
        print_json(answer)
        return
    rows = [
        [node["name"], node["type"], _node_state(node), str(node["gpus"]), str(node["free"])]
        for node in answer["nodes"]
    ]
    print_table("Nodes", ["node", "type", "", "GPUs", "free"], rows, left=3)
    print_watching(client)


def _node_state(node: dict[str, Any]) -> str:
    return "up" if node["up"] else "drained" if node.get("drained") else "down"


@nodes.command("drain")
def drain(node: str, output: Output = Format.table) -> None:
    """Start nothing more on a node, and move its jobs elsewhere."""
    _print_answer(Client.from_environment().post(f"/nodes/{in_path(node)}/drain"), output)


@nodes.command("resume")
def resume(node: str, output: Output = Format.table) -> None:
    """Use a drained node again."""
    _print_answer(Client.from_environment().post(f"/nodes/{in_path(node)}/resume"), output)


@nodes.command("add")
def add_node(
    node: str,
    gpu: Annotated[str, typer.Option(help="Type of its GPUs.", metavar="TYPE")],
    gpus: Annotated[int, typer.Option(min=1, help="How many it has.")],
    memory_gib: Annotated[float | None, typer.Option(help="Of one GPU, where it is not the usual one.")] = None,
    output: Output = Format.table,
) -> None:
    """Add a node to the cluster, or bring back one that was removed, perhaps with other GPUs."""
    body = {"name": node, "gpu": gpu, "gpus": gpus, "memory_gib": memory_gib}
    _print_answer(Client.from_environment().post("/nodes", body), output)


@nodes.command("remove")
def remove_node(
    node: str,
    now: Annotated[bool, typer.Option("--now", help="Although jobs run on it: they are asked to leave.")] = False,
    output: Output = Format.table,
) -> None:
    """Remove a node from the cluster. Drain it first, or its jobs have to leave at once with --now."""
    _print_answer(Client.from_environment().delete(f"/nodes/{in_path(node)}{'?now=true' if now else ''}"), output)


# ---- tenants --------------------------------------------------------------------------------------------------------


MaxQueued = Annotated[str | None, typer.Option(help="Jobs that may wait, or `default`.", metavar="N")]
MaxSubmits = Annotated[str | None, typer.Option(help="Jobs submitted within a minute, or `default`.", metavar="N")]
MaxLog = Annotated[
    str | None, typer.Option(help="Size of the log of one lease, such as 100MiB, or `default`.", metavar="BYTES")
]
MaxCheckpoints = Annotated[
    str | None, typer.Option(help="Size of all stored checkpoints, such as 2TiB, or `default`.", metavar="BYTES")
]


@tenants.callback()
def list_tenants(context: typer.Context, output: Output = Format.table) -> None:
    """List the tenants with their weights, quotas and limits."""
    if context.invoked_subcommand:
        return
    answer = Client.from_environment().get("/tenants")
    if output is Format.json:
        print_json(answer)
        return
    rows = [
        [
            t["name"],
            format_number(t["weight"]),
            "; ".join(map(_quota_text, t["quotas"])) or "-",
            *(_count_text(t["applied"][name]) for name in ("max_queued", "max_submits")),
            format_bytes(t["applied"]["log_bytes"]),
            _stored_text(t["stored_bytes"], t["applied"]["checkpoint_bytes"]),
        ]
        for t in answer["tenants"]
    ]
    columns = ["tenant", "weight", "quotas", "queued at most", "submits a minute", "log of a lease", "checkpoints"]
    print_table("Tenants", columns, rows, left=1)


@tenants.command("set")
def set_tenant(
    tenant: str,
    weight: Annotated[
        float | None, typer.Option(help="Its part of the cluster, relative to other tenants' weights.")
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(help="GPUs of a type: own[+may borrow][-lends at most].", metavar="TYPE=OWN[+BORROW][-LEND]"),
    ] = None,
    max_queued: MaxQueued = None,
    max_submits: MaxSubmits = None,
    max_log: MaxLog = None,
    max_checkpoints: MaxCheckpoints = None,
    output: Output = Format.table,
) -> None:
    """Set a tenant's weight or limits, or replace all its quotas (`--quota none` removes them); the others stay."""
    limits = _limits(max_queued, max_submits, max_log, max_checkpoints)
    if weight is None and not quota and not limits:
        raise InputError("nothing to set; give --weight, --quota or a limit such as --max-queued")
    client = Client.from_environment()
    if limits:
        present = {row["name"]: row["limits"] for row in client.get("/tenants")["tenants"]}.get(tenant, {})
        answer = client.put(f"/tenants/{in_path(tenant)}/limits", {**present, **limits})
    if weight is not None or quota:
        answer = _set_terms(client, tenant, weight, quota)
    _print_answer(answer, output)


@tenants.command("defaults")
def set_defaults(
    max_queued: MaxQueued = None,
    max_submits: MaxSubmits = None,
    max_log: MaxLog = None,
    max_checkpoints: MaxCheckpoints = None,
    output: Output = Format.table,
) -> None:
    """Set limits of all tenants that have none of their own; the others stay."""
    limits = _limits(max_queued, max_submits, max_log, max_checkpoints)
    if not limits:
        raise InputError("nothing to set; give a limit such as --max-queued")
    client = Client.from_environment()
    _print_answer(client.put("/limits", {**client.get("/tenants")["every_tenant"], **limits}), output)


def _limits(queued: str | None, submits: str | None, log: str | None, checkpoints: str | None) -> dict[str, int | None]:
    """The limits of the command line; None stands for `default`."""
    parsed: dict[str, int | None] = {}
    for name, option, text in (("max_queued", "--max-queued", queued), ("max_submits", "--max-submits", submits)):
        if text is not None:
            parsed[name] = None if text == "default" else parse_whole(text, option)
    for name, option, text in (
        ("log_bytes", "--max-log", log),
        ("checkpoint_bytes", "--max-checkpoints", checkpoints),
    ):
        if text is not None:
            parsed[name] = None if text == "default" else parse_bytes(text, option)
    return parsed


def _count_text(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _stored_text(stored: int | None, most: int | None) -> str:
    if stored is None or most is None:
        return "-"
    return f"{format_bytes(stored)} of {format_bytes(most)}" + (" (full)" if stored >= most else "")


def _set_terms(client: Client, tenant: str, weight: float | None, quota: list[str] | None) -> Any:
    body: dict[str, Any] = {"weight": weight}
    if quota:
        pairs = {} if quota == ["none"] else parse_pairs(quota, "--quota", "v100=8+4-2")
        body["quotas"] = [parse_quota(type_, text) for type_, text in pairs.items()]
    if weight is None or not quota:
        present = {row["name"]: row for row in client.get("/tenants")["tenants"]}.get(tenant, {})
        body["weight"] = present.get("weight", 1.0) if weight is None else weight
        body.setdefault("quotas", present.get("quotas", []))
    return client.put(f"/tenants/{in_path(tenant)}", body)


def _quota_text(quota: dict[str, Any]) -> str:
    text = f"{quota['type']}: {quota['nominal']} own"
    if quota.get("borrowing_limit") is not None:
        text += f", borrows {quota['borrowing_limit']}"
    if quota.get("lending_limit") is not None:
        text += f", lends {quota['lending_limit']}"
    return text


def share(
    promises: Annotated[
        bool, typer.Option(help="Also say which promises were kept so far; may take seconds, like `audit`.")
    ] = True,
    output: Output = Format.table,
) -> None:
    """Show what each tenant holds now, what it is entitled to by weight, and whether promises were kept so far."""
    answer = Client.from_environment().get("/shares", promises="true" if promises else None)
    if output is Format.json:
        print_json(answer)
        return
    print_table("Shares", SHARE_COLUMNS, [share_row(tenant) for tenant in answer["shares"]])
    if answer.get("promises") is not None:
        print_promises(f"Promises of {answer['policy']} so far", answer)


SHARE_COLUMNS = ["tenant", "weight", "holds now", "entitled to", "GPU-hours so far", "running", "waiting"]


def share_row(tenant: dict[str, Any]) -> list[str]:
    """The row of a tenant under `SHARE_COLUMNS`."""
    holds = ", ".join(f"{count} {type_}" for type_, count in tenant["held"].items())
    entitled = ", ".join(f"{format_number(gpus)} {type_}" for type_, gpus in tenant["entitled"].items() if gpus)
    counts = [str(tenant["running"]), str(tenant["waiting"])]
    return [
        tenant["tenant"],
        format_number(tenant["weight"]),
        holds or "-",
        entitled or "-",
        f"{tenant['gpu_hours']:.2f}",
        *counts,
    ]


# ---- policy ---------------------------------------------------------------------------------------------------------


@policy.callback()
def show_policy(context: typer.Context, output: Output = Format.table) -> None:
    """Show the policy that decides."""
    if not context.invoked_subcommand:
        _print_answer(Client.from_environment().get("/policy"), output)


@policy.command("set")
def set_policy(
    name: str,
    param: Annotated[list[str] | None, typer.Option(help="A parameter of the policy.", metavar="NAME=VALUE")] = None,
    output: Output = Format.table,
) -> None:
    """Switch to another policy that the service has."""
    from fairlead.cli.options import parse_parameters
    from fairlead.policies import ROUND_POLICIES

    parameters = parse_parameters(param or [], ROUND_POLICIES.get(name))
    _print_answer(Client.from_environment().put("/policy", {"name": name, "parameters": parameters}), output)


# ---- tokens ---------------------------------------------------------------------------------------------------------


@token.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    role: Annotated[str, typer.Option(help="admin, member (of a tenant), viewer or metrics.")] = "member",
    tenant: Annotated[str | None, typer.Option(help="Tenant of a member.")] = None,
    lifetime: Annotated[str, typer.Option(help="How long it is valid, such as 12h or 90d.")] = "30d",
    output: Output = Format.table,
) -> None:
    """Create a token. It is printed once and cannot be read again."""
    body = {"name": name, "role": role, "tenant": tenant, "lifetime": lifetime}
    document = Client.from_environment().post(
        "/tokens", {key: value for key, value in body.items() if value is not None}
    )
    if output is Format.json:
        print_json(document)
    else:
        print_lines(document["token"])


@token.command("list")
def list_tokens(output: Output = Format.table) -> None:
    """List tokens, without their secrets."""
    answer = Client.from_environment().get("/tokens")
    if output is Format.json:
        print_json(answer)
        return
    rows = [
        [t["id"], t["name"], t["role"], t["tenant"] or "-", when(t["expires_s"]), when(t["revoked_s"])]
        for t in answer["tokens"]
    ]
    print_table("Tokens", ["id", "name", "role", "tenant", "expires", "revoked"], rows, left=6)


@token.command("revoke")
def revoke_token(id_: Annotated[str, typer.Argument(metavar="ID")], output: Output = Format.table) -> None:
    """Revoke a token at once."""
    _print_answer(Client.from_environment().delete(f"/tokens/{in_path(id_)}"), output)


@token.command("use")
def use_token(url: Annotated[str | None, typer.Option(help="URL of the service.")] = None) -> None:
    """Read a token from stdin and save it for later commands of this user."""
    secret = sys.stdin.readline().strip()
    if not secret:
        raise InputError("stdin is empty; expected a token, for example: fairlead token use < token.txt")
    path = save_credentials(url or Client.from_environment().url, secret)
    print(f"saved in {path}")


# ---- the journal and the live screen --------------------------------------------------------------------------------


def journal(
    out: Annotated[
        Path | None, typer.Option(help="Write to this file (default: standard output).", metavar="FILE")
    ] = None,
) -> None:
    """Write everything that happened as a journal, for `fairlead replay` and `fairlead audit`."""
    from fairlead.traces.files import create_text

    lines = Client.from_environment().lines("/journal")
    if out is None:
        for line in lines:
            write_stream(line)
        return
    with create_text(out) as file:
        file.writelines(lines)


def top(
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two refreshes.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one screen and exit.")] = False,
) -> None:
    """Show nodes, shares and jobs live in the terminal. Ctrl-C ends it."""
    from rich.console import Console
    from rich.live import Live

    client = Client.from_environment()
    console = Console(width=None if sys.stdout.isatty() else 160)
    if once or not sys.stdout.isatty():
        console.print(_screen(client, 40))
        return
    with Live(_screen(client, console.height), console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(every)
                live.update(_screen(client, console.height), refresh=True)
        except KeyboardInterrupt:
            pass


def _screen(client: Client, height: int) -> Any:
    from rich.console import Group
    from rich.table import Table

    cluster, shares, current = client.get("/nodes"), client.get("/shares"), client.get("/policy")
    usage: dict[str, list[int]] = {}
    for node in cluster["nodes"]:
        row = usage.setdefault(node["type"], [0, 0, 0])
        row[0] += node["gpus"] - node["free"]
        row[1] += node["gpus"]
        row[2] += not node["up"]
    types = Table(
        "type", "GPUs in use", "", "nodes down", title=cell(f"policy {current['name']}"), title_justify="left"
    )
    for type_, (busy, total, down) in usage.items():
        types.add_row(cell(type_), f"{busy} of {total}", _bar(busy / max(total, 1)), str(down or "-"))
    tenant_table = Table(*SHARE_COLUMNS)
    for tenant in shares["shares"][: max(height // 4, 3)]:
        tenant_table.add_row(*map(cell, share_row(tenant)))
    jobs = Table(*JOB_COLUMNS)
    rows = max(height - types.row_count - tenant_table.row_count - 14, 3)
    for job in client.get("/jobs", phase=["active"], limit=rows)["jobs"]:
        jobs.add_row(*map(cell, job_row(job)))
    return Group(types, tenant_table, jobs)


def _bar(part: float, width: int = 20) -> str:
    full = round(min(max(part, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def _print_answer(answer: Any, output: Format) -> None:
    if output is Format.json:
        print_json(answer)
        return
    if set(answer) == {"request", "taken"}:
        print("done" if answer["taken"] else "requested")
        return
    for key, value in answer.items():
        print_lines(f"{key}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
