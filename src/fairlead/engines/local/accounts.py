"""The users of this machine as whom the jobs of tenants run."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.engines.leases import Lease
from fairlead.engines.runner import LaunchError
from fairlead.model.errors import InputError

_NUMBERS = re.compile(r"(\d+):(\d+)\Z")
_LARGEST = 2**32 - 2  # the one above means "unchanged" to the kernel


@dataclass(frozen=True, slots=True)
class Account:
    """A user with all that its processes need to know about it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


@dataclass(frozen=True, slots=True)
class Accounts:
    """Users by tenant, and one for all other tenants; with neither, jobs run as the user of the service."""

    default: Account | None = None
    by_tenant: Mapping[str, Account] = field(default_factory=dict)

    def all(self) -> list[Account]:
        return [*self.by_tenant.values(), *([self.default] if self.default else [])]

    def of(self, tenant: str) -> Account | None:
        """The user of a tenant, None for that of the service; LaunchError if only other tenants have one."""
        account = self.by_tenant.get(tenant, self.default)
        if account is None and self.by_tenant:
            raise LaunchError(
                f"tenant {tenant} has no user on this machine; the operator names one with --user {tenant}=NAME"
            )
        return account

    def check_unchanged(self, lease: Lease, uid: int | None) -> None:
        """InputError if the lease, which runs as the user of this number, would have another user now."""
        account = self.of(lease.tenant)
        if uid != (account.uid if account else None):
            raise InputError(
                f"job {lease.job} of tenant {lease.tenant} runs as {'the service' if uid is None else f'user {uid}'}, but "
                f"its tenant has {account.name if account else 'no user'} now; start the service with --user as before, "
                "and change it when no job of the tenant runs (hold them first)"
            )


ONE_USER = Accounts()


def parse_accounts(words: Sequence[str]) -> Accounts:
    """Accounts from `NAME`, the user of all tenants without one of their own, and `TENANT=NAME`."""
    users: dict[str, Account] = {}
    for word in words:
        tenant, _, name = word.rpartition("=")
        if tenant in users:
            raise InputError(f"--user {word}: {f'tenant {tenant}' if tenant else 'the default'} has a user already")
        users[tenant] = _account(name)
    return Accounts(users.pop("", None), users)


def _account(name: str) -> Account:
    account = _by_number(name) or _by_name(name)
    if os.geteuid():
        raise InputError(
            f'jobs can run as "{name}" only if the service runs as root; start it as root or leave the user out'
        )
    if account.uid == 0:
        raise InputError(f'jobs of tenants cannot run as "{name}", who may do anything; name an ordinary user')
    return account


def _by_number(name: str) -> Account | None:
    numbers = _NUMBERS.match(name)
    if numbers is None:
        return None
    uid, gid = int(numbers[1]), int(numbers[2])
    if max(uid, gid) > _LARGEST:
        raise InputError(f'"{name}" is not UID:GID; the largest number of a user or group is {_LARGEST}')
    return Account(name, uid, gid, (gid,), "/")


def _by_name(name: str) -> Account:
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise InputError(f'there is no user "{name}" on this machine; name one that exists, or write UID:GID') from None
    groups = tuple(os.getgrouplist(user.pw_name, user.pw_gid))
    return Account(user.pw_name, user.pw_uid, user.pw_gid, groups, user.pw_dir)


def check_reachable(root: Path, account: Account) -> None:
    """Jobs of another user read their lease below `root`, so they must be able to enter its parent directories."""
    for parent in root.parents:
        if parent.exists() and not parent.stat().st_mode & stat.S_IXOTH and parent.stat().st_uid != account.uid:
            raise InputError(
                f"user {account.name} cannot enter {parent}, below which leases are kept; choose a directory that it can enter"
            )


def check_checkpoints(current: Path, unused: Path, account: Account | None) -> None:
    """LaunchError if the checkpoints of a job are where it cannot read them since `--user` was changed."""
    if unused.is_dir() and any(unused.iterdir()):
        raise LaunchError(
            f"its checkpoints are in {unused}, where it cannot read them since --user was changed; move them to {current}, "
            "or start the service as before"
        )
    if account and current.exists() and current.stat().st_uid != account.uid:
        raise LaunchError(
            f"its checkpoints in {current} belong to user {current.stat().st_uid}, but its tenant has user {account.name} "
            f"now; run chown -R {account.uid}:{account.gid} {current}, or start the service as before"
        )


def give(path: Path, account: Account | None) -> None:
    if account:
        os.chown(path, account.uid, account.gid)
