"""Slurm's accounts as tenants: weights from `sshare`, limits from `sacctmgr`.

    sshare -a -P -o Account,User,RawShares,RawUsage
    sacctmgr -P show assoc format=Account,User,Share,QOS,GrpTRES

Shares form a tree, and those of one level divide what its parent has. A weight is what remains for the users of the
account itself, in units of the shares of the first level: without nested accounts, it is the account's shares.
Departs: `fairshare=parent` counts as one share, because what it means depends on the users of the parent. `GrpTRES` is a
cap, so that the quota owns nothing and limits what is borrowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fairlead.engines.slurm.tables import value
from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.model.quotas import Quota
from fairlead.model.slurm_text import gpus_by_type

SHARES = ("sshare", "-a", "-P", "-o", "Account,User,RawShares,RawUsage")
LIMITS = ("sacctmgr", "-n", "-P", "show", "assoc", "format=Account,User,Share,QOS,GrpTRES")
LIMIT_COLUMNS = ("Account", "User", "Share", "QOS", "GrpTRES")


@dataclass(frozen=True, slots=True)
class SlurmAccounts:
    """What Slurm's accounting says about tenants. Accounts that it does not list have weight 1 and no limit."""

    weights: Mapping[str, float] = field(default_factory=dict)
    quotas: Mapping[str, tuple[Quota, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Branch:
    account: str
    shares: float
    users: float = 0.0  # shares of its own users together
    below: list[_Branch] = field(default_factory=list)


def read_weights(text: str) -> dict[str, float]:
    """The weights by account; empty if Slurm has no shares, as without an accounting database."""
    path: list[_Branch] = [_Branch("", 1.0)]
    for row in _rows(text):
        depth = len(row["Account"]) - len(row["Account"].lstrip())
        account, shares = row["Account"].strip(), _shares(row.get("RawShares", ""))
        del path[depth + 1 :]
        if row.get("User", "").strip():
            path[-1].users += shares
        else:
            path[-1].below.append(_Branch(account, shares))
            path.append(path[-1].below[-1])
    first = path[0].below
    root = first[0] if len(first) == 1 else path[0]  # `root` is the only account of the first level
    total = root.users + sum(branch.shares for branch in root.below)
    return dict(_weights(root, total))


def _weights(branch: _Branch, weight: float) -> Iterator[tuple[str, float]]:
    total = branch.users + sum(below.shares for below in branch.below)
    own = weight * branch.users / total if total else weight
    if branch.account and own > 0:
        yield branch.account, own
    for below in branch.below:
        if below.shares > 0:
            yield from _weights(below, weight * below.shares / total)


def _shares(text: str) -> float:
    return float(text) if text.strip().isdigit() else 1.0


def read_quotas(
    text: str, types: tuple[str, ...], aliases: Mapping[str, str] | None = None
) -> tuple[dict[str, tuple[Quota, ...]], tuple[str, ...]]:
    """The caps on GPUs by account, and what could not be kept exactly. Limits of single users are left out."""
    quotas: dict[str, tuple[Quota, ...]] = {}
    notes: list[str] = []
    for row in _rows(text, LIMIT_COLUMNS):
        account, user = row["Account"].strip(), value(row.get("User", ""))
        caps = gpus_by_type(value(row.get("GrpTRES", "")))
        if not caps:
            continue
        if user:
            notes.append(f"the limit of user {user} in account {account} is not kept")
            continue
        limits, more = _caps(account, caps, types, aliases or {})
        notes += more
        if limits:
            quotas[account] = tuple(Quota(type_, 0, borrowing_limit=most) for type_, most in limits.items())
    return quotas, tuple(notes)


def _caps(
    account: str, caps: Mapping[str, int], types: tuple[str, ...], aliases: Mapping[str, str]
) -> tuple[dict[str, int], list[str]]:
    limits: dict[str, int] = {}
    notes = []
    for spelling, most in caps.items():
        if not spelling:
            notes.append(f"account {account} may have {most} GPUs of all types; {most} of each type are allowed")
            limits |= {type_: min(most, limits.get(type_, most)) for type_ in types}
            continue
        try:
            type_ = canonical_gpu(spelling, aliases)
        except InputError:
            continue
        if type_ in types:
            limits[type_] = min(most, limits.get(type_, most))
    return limits, notes


def _rows(text: str, columns: tuple[str, ...] = ()) -> Iterator[dict[str, str]]:
    """The rows by the names of the heading, or by `columns` if there is none. Blanks are kept: they show the depth."""
    lines = [line.split("|") for line in text.splitlines() if "|" in line]
    if lines and "Account" in lines[0]:
        columns = tuple(lines.pop(0))
    for fields in lines:
        if len(fields) >= len(columns) > 0:
            yield dict(zip(columns, fields, strict=False))
