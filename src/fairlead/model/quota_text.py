"""Quotas as people write them: `v100=8+4-2` is eight GPUs of its own, four more to borrow, two of the eight to lend."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from fairlead.model.errors import InputError

NO_QUOTAS = "none"


def parse_quota(type_: str, text: str) -> dict[str, Any]:
    """The quota of `8+4-2`, with the names of its fields; limits that are not written are left out."""
    match = re.fullmatch(r"(\d{1,9})(?:\+(\d{1,9}))?(?:-(\d{1,9}))?", text.strip())
    if not match:
        raise InputError(f'quota {type_}="{text}" is not OWN[+BORROW][-LEND], such as 8+4-2')
    nominal, borrow, lend = match.groups()
    quota: dict[str, Any] = {"type": type_, "nominal": int(nominal)}
    if borrow is not None:
        quota["borrowing_limit"] = int(borrow)
    if lend is not None:
        quota["lending_limit"] = int(lend)
    return quota


def parse_quotas(text: str) -> list[dict[str, Any]]:
    """All quotas of a tenant, as in `v100=8+4-2, k80=2`, or `none`."""
    if text.strip().lower() == NO_QUOTAS:
        return []
    quotas = []
    for part in text.split(","):
        type_, equals, size = part.strip().partition("=")
        if not equals or not type_:
            raise InputError(f'quotas "{text}" are not understood; write TYPE=OWN[+BORROW][-LEND], ... or {NO_QUOTAS}')
        quotas.append(parse_quota(type_.strip(), size))
    return quotas


def quotas_text(quotas: Iterable[Any]) -> str:
    """The same text for quotas with these fields."""
    return ", ".join(map(_text, quotas)) or NO_QUOTAS


def _text(quota: Any) -> str:
    borrow = "" if quota.borrowing_limit is None else f"+{quota.borrowing_limit}"
    lend = "" if quota.lending_limit is None else f"-{quota.lending_limit}"
    return f"{quota.type}={quota.nominal}{borrow}{lend}"
