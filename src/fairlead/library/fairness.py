"""`fairlead.allocate` and `fairlead.audit`: divisions of GPUs on paper, and the fairness of runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairlead.library.reading import File
from fairlead.model.errors import InputError
from fairlead.rounds.journal import is_snapshot, open_journal
from fairlead.studies.fairness.instances import (
    TenantInstance,
    audit_lies,
    audit_shares,
    divide,
    parse_instance,
    parse_shares,
    read_json,
)
from fairlead.studies.fairness.journal_audit import audit_journal

MANY_TENANTS = 20  # above this, no search for lies by default: it solves hundreds of divisions per tenant


def allocate(instance: Mapping[str, Any] | File, policy: str) -> dict[str, Any]:
    """Divide the GPUs of an instance between its tenants, and audit the division, as `fairlead allocate -o json` does.

    An instance is a file or a value such as
    `{"gpus": {"k80": 8, "v100": 8}, "tenants": [{"name": "vision", "speedups": {"k80": 1, "v100": 7}}, ...]}`.
    """
    return divide(_instance(*_value(instance)), policy)


def audit(
    source: Mapping[str, Any] | File, *, policy: str | None = None, lies: bool | None = None, seed: int = 0
) -> dict[str, Any]:
    """Whether a division or a run is fair, as `fairlead audit -o json` reports it.

    `source` is an instance, for which `policy` is the rule to audit; an allocation, as `allocate` returns it; or the
    journal of a run. `lies` searches for lies that pay (default: for at most 20 virtual users).
    """
    if not isinstance(source, Mapping) and is_journal(str(source)):
        if policy is not None or lies:
            raise InputError(
                "--policy and --lies are for instances; a run shows what its own policy did", path=str(source)
            )
        return audit_journal(Path(source)).to_json()
    value, name = _value(source)
    instance = _instance(value, name)
    if "shares" in value:
        report = audit_shares(instance, parse_shares(dict(value), instance, name))
        policy = policy or value.get("policy")
    elif policy is not None:
        report = divide(instance, policy)["audit"]
    else:
        path = None if isinstance(source, Mapping) else name
        raise InputError("an instance alone has nothing to audit; choose a rule with --policy", path=path)
    if policy is not None and (lies or (lies is None and len(instance.names) <= MANY_TENANTS)):
        report["lies"] = audit_lies(instance, policy, seed)
    return {"policy": policy, **report}


def is_journal(path: str) -> bool:
    try:
        if is_snapshot(Path(path)):
            raise InputError(
                "this is a snapshot, which has no history to audit; audit the output of `fairlead journal`, or ask "
                "`fairlead what-if --from` about its future",
                path=path,
            )
        with open_journal(Path(path)) as file:
            return '"fairlead":"journal/' in file.readline(200)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None


def _value(source: Mapping[str, Any] | File) -> tuple[Mapping[str, Any], str]:
    """The value and its name in messages."""
    return (source, "instance") if isinstance(source, Mapping) else (read_json(str(source)), str(source))


def _instance(value: Mapping[str, Any], name: str) -> TenantInstance:
    return parse_instance(value.get("instance", value) if "shares" in value else dict(value), name)
