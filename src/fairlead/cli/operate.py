"""Verbs of those who run a cluster: serve, nodes, tenants, share, policy, token, top, doctor."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.jobs import JOB_COLUMNS, job_row, when
from fairlead.cli.options import parse_pairs
from fairlead.cli.output import Format, Output, print_json, print_table
from fairlead.model.errors import InputError
from fairlead.model.units import format_number
from fairlead.service.client import Client, in_path, save_credentials

tenants = typer.Typer(help="Weights and quotas of tenants.", no_args_is_help=False, invoke_without_command=True)
nodes = typer.Typer(help="Nodes: list, drain, resume, add, remove.", invoke_without_command=True)
policy = typer.Typer(help="The policy that decides: show it, or switch to another.", invoke_without_command=True)
token = typer.Typer(help="Tokens: who may do what.", no_args_is_help=True)


# ---- nodes ----------------------------------------------------------------------------------------------------------


@nodes.callback()
def list_nodes(context: typer.Context, output: Output = Format.table) -> None:
    """List the nodes with what they hold."""
    if context.invoked_subcommand:
        return
    found = Client.from_environment().get("/nodes")
    if output is Format.json:
        print_json(found)
        return
    rows = [
        [node["name"], node["type"], "up" if node["up"] else "down", str(node["gpus"]), str(node["free"])]
        for node in found["nodes"]
    ]
    print_table("Nodes", ["node", "type", "", "GPUs", "free"], rows, left=3)


@nodes.command("drain")
def drain(node: str, output: Output = Format.table) -> None:
    """Start nothing more on a node, and move its jobs elsewhere."""
    _told(Client.from_environment().post(f"/nodes/{in_path(node)}/drain"), output)


@nodes.command("resume")
def resume(node: str, output: Output = Format.table) -> None:
    """Use a drained node again."""
    _told(Client.from_environment().post(f"/nodes/{in_path(node)}/resume"), output)


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
    _told(Client.from_environment().post("/nodes", body), output)


@nodes.command("remove")
def remove_node(
    node: str,
    now: Annotated[bool, typer.Option("--now", help="Although jobs run on it: they are asked to leave.")] = False,
    output: Output = Format.table,
) -> None:
    """Remove a node from the cluster. Drain it first, or its jobs have to leave at once with --now."""
    _told(Client.from_environment().delete(f"/nodes/{in_path(node)}{'?now=true' if now else ''}"), output)


# ---- tenants --------------------------------------------------------------------------------------------------------


@tenants.callback()
def list_tenants(context: typer.Context, output: Output = Format.table) -> None:
    """List the tenants with their weights and quotas."""
    if context.invoked_subcommand:
        return
    found = Client.from_environment().get("/tenants")
    if output is Format.json:
        print_json(found)
        return
    rows = [
        [t["name"], format_number(t["weight"]), "; ".join(map(_quota, t["quotas"])) or "-"] for t in found["tenants"]
    ]
    print_table("Tenants", ["tenant", "weight", "quotas"], rows, left=1)


@tenants.command("set")
def set_tenant(
    tenant: str,
    weight: Annotated[
        float | None, typer.Option(help="Its part of the cluster against other tenants' weights.")
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(help="GPUs of a type: own[+may borrow][-lends at most].", metavar="TYPE=OWN[+BORROW][-LEND]"),
    ] = None,
    output: Output = Format.table,
) -> None:
    """Set a tenant's weight, or its quotas in place of all it had. What is not given stays; `--quota none` lifts all."""
    if weight is None and not quota:
        raise InputError("nothing to set; give --weight, --quota or both")
    client = Client.from_environment()
    given: dict[str, Any] = {"weight": weight}
    if quota:
        lifted = quota == ["none"]
        pairs = {} if lifted else parse_pairs(quota, "--quota")
        given["quotas"] = [parse_quota(type_, text) for type_, text in pairs.items()]
    if weight is None or not quota:
        present = {row["name"]: row for row in client.get("/tenants")["tenants"]}.get(tenant, {})
        given["weight"] = present.get("weight", 1.0) if weight is None else weight
        given.setdefault("quotas", present.get("quotas", []))
    _told(client.put(f"/tenants/{in_path(tenant)}", given), output)


def parse_quota(type_: str, text: str) -> dict[str, Any]:
    """`8+4-2`: eight of its own, four more may be borrowed, two of the eight may be lent."""
    import re

    match = re.fullmatch(r"(\d+)(?:\+(\d+))?(?:-(\d+))?", text.strip())
    if not match:
        raise InputError(f'--quota {type_}="{text}" is not OWN[+BORROW][-LEND], such as 8+4-2')
    nominal, borrow, lend = match.groups()
    found: dict[str, Any] = {"type": type_, "nominal": int(nominal)}
    if borrow is not None:
        found["borrowing_limit"] = int(borrow)
    if lend is not None:
        found["lending_limit"] = int(lend)
    return found


def _quota(quota: dict[str, Any]) -> str:
    text = f"{quota['type']}: {quota['nominal']} own"
    if quota.get("borrowing_limit") is not None:
        text += f", borrows {quota['borrowing_limit']}"
    if quota.get("lending_limit") is not None:
        text += f", lends {quota['lending_limit']}"
    return text


def share(output: Output = Format.table) -> None:
    """What each tenant holds now, against its part by weight."""
    found = Client.from_environment().get("/shares")
    if output is Format.json:
        print_json(found)
        return
    print_table("Shares", SHARE_COLUMNS, [share_row(tenant) for tenant in found["shares"]])


SHARE_COLUMNS = ["tenant", "weight", "holds now", "entitled to", "GPU-hours so far", "running", "waiting"]


def share_row(tenant: dict[str, Any]) -> list[str]:
    """For `SHARE_COLUMNS`."""
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
        _told(Client.from_environment().get("/policy"), output)


@policy.command("set")
def set_policy(
    name: str,
    param: Annotated[list[str] | None, typer.Option(help="A parameter of the policy.", metavar="NAME=VALUE")] = None,
    output: Output = Format.table,
) -> None:
    """Let another registered policy decide from now on."""
    from fairlead.cli.options import parse_parameters
    from fairlead.policies import find_round_policy

    parameters = parse_parameters(param or [], find_round_policy(name).parameters)
    _told(Client.from_environment().put("/policy", {"name": name, "parameters": parameters}), output)


# ---- tokens ---------------------------------------------------------------------------------------------------------


@token.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    role: Annotated[str, typer.Option(help="admin, member (of a tenant) or viewer.")] = "member",
    tenant: Annotated[str | None, typer.Option(help="Whose member it is.")] = None,
    lifetime: Annotated[str, typer.Option(help="How long it is good for, such as 12h or 90d.")] = "30d",
    output: Output = Format.table,
) -> None:
    """Make a token. It is shown once and cannot be read again."""
    body = {"name": name, "role": role, "tenant": tenant, "lifetime": lifetime}
    made = Client.from_environment().post("/tokens", {key: value for key, value in body.items() if value is not None})
    if output is Format.json:
        print_json(made)
    else:
        print(made["token"])


@token.command("list")
def list_tokens(output: Output = Format.table) -> None:
    """List tokens: never the secrets."""
    found = Client.from_environment().get("/tokens")
    if output is Format.json:
        print_json(found)
        return
    rows = [
        [t["id"], t["name"], t["role"], t["tenant"] or "-", when(t["expires_s"]), when(t["revoked_s"])]
        for t in found["tokens"]
    ]
    print_table("Tokens", ["id", "name", "role", "tenant", "expires", "revoked"], rows, left=6)


@token.command("revoke")
def revoke_token(id_: Annotated[str, typer.Argument(metavar="ID")], output: Output = Format.table) -> None:
    """Make a token worthless at once."""
    _told(Client.from_environment().delete(f"/tokens/{in_path(id_)}"), output)


@token.command("use")
def use_token(url: Annotated[str | None, typer.Option(help="Where the service is.")] = None) -> None:
    """Read a token from stdin and keep it for this user's next commands."""
    secret = sys.stdin.readline().strip()
    if not secret:
        raise InputError("stdin is empty; wanted a token, for instance: fairlead token use < token.txt")
    place = save_credentials(url or Client.from_environment().url, secret)
    print(f"saved in {place}")


# ---- looking on -----------------------------------------------------------------------------------------------------


def journal(
    out: Annotated[Path | None, typer.Option(help="Write it here (default: standard output).", metavar="FILE")] = None,
) -> None:
    """Write everything that happened as a journal, for `fairlead replay` and `fairlead audit`."""
    from fairlead.traces.files import create_text

    lines = Client.from_environment().lines("/journal")
    if out is None:
        sys.stdout.writelines(lines)
        return
    with create_text(out) as file:
        file.writelines(lines)


def top(
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="One look, then end.")] = False,
) -> None:
    """Nodes, shares and jobs, live in the terminal. Ctrl-C ends it."""
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

    found, shares, ruling = client.get("/nodes"), client.get("/shares"), client.get("/policy")
    usage: dict[str, list[int]] = {}
    for node in found["nodes"]:
        row = usage.setdefault(node["type"], [0, 0, 0])
        row[0] += node["gpus"] - node["free"]
        row[1] += node["gpus"]
        row[2] += not node["up"]
    types = Table("type", "GPUs in use", "", "nodes down", title=f"policy {ruling['name']}", title_justify="left")
    for type_, (busy, total, down) in usage.items():
        types.add_row(type_, f"{busy} of {total}", _bar(busy / max(total, 1)), str(down or "-"))
    people = Table(*SHARE_COLUMNS)
    for tenant in shares["shares"][: max(height // 4, 3)]:
        people.add_row(*share_row(tenant))
    jobs = Table(*JOB_COLUMNS)
    rows = max(height - types.row_count - people.row_count - 14, 3)
    for job in client.get("/jobs", phase=["active"], limit=rows)["jobs"]:
        jobs.add_row(*job_row(job))
    return Group(types, people, jobs)


def _bar(part: float, width: int = 20) -> str:
    full = round(min(max(part, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def _told(answer: Any, output: Format) -> None:
    if output is Format.json:
        print_json(answer)
        return
    if set(answer) == {"request", "taken"}:
        print("done" if answer["taken"] else "on its way")
        return
    for key, value in answer.items():
        print(f"{key}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
