"""Tokens with a role, a tenant and an expiry. Their secrets are shown once and stored as digests.

A token has the form `fl_ID_SECRET`; the secret has 256 random bits. The API is the only writer, so its table in memory
is exact.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import sqlite3
from dataclasses import dataclass
from enum import StrEnum

_TOKEN = re.compile(r"fl_([0-9a-f]{12})_([A-Za-z0-9_-]{43})\Z")
_NO_DIGEST = hashlib.sha256(b"").digest()


class Role(StrEnum):
    ADMIN = "admin"  # everything
    MEMBER = "member"  # its tenant's jobs
    VIEWER = "viewer"  # reads the jobs of its tenant, or of all tenants if it has none
    METRICS = "metrics"  # reads /metrics and nothing else


@dataclass(frozen=True, slots=True)
class Token:
    """A token with the digest of its secret."""

    id: str
    digest: bytes
    name: str
    role: Role
    tenant: str | None
    created_s: float
    expires_s: float
    revoked_s: float | None = None

    @property
    def actor(self) -> str:
        return f"{self.name} ({self.id})"

    def valid_at(self, now_s: float) -> bool:
        return self.revoked_s is None and now_s < self.expires_s


def new_token(name: str, role: Role, tenant: str | None, now_s: float, lifetime_s: float) -> tuple[str, Token]:
    """A new token, as (text for its owner, record to store)."""
    id_, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return f"fl_{id_}_{secret}", Token(id_, _digest(secret), name, role, tenant, now_s, now_s + lifetime_s)


class Tokens:
    """All tokens in memory, as requests.db has them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._by_id = {row["id"]: _from_row(row) for row in connection.execute("SELECT * FROM tokens")}

    def find(self, shown: str, now_s: float) -> Token | None:
        """The valid token with this text; takes as long for a wrong secret as for a right one."""
        match = _TOKEN.match(shown)
        token = self._by_id.get(match[1]) if match else None
        right = hmac.compare_digest(_digest(match[2] if match else ""), token.digest if token else _NO_DIGEST)
        return token if token is not None and right and token.valid_at(now_s) else None

    def all(self) -> list[Token]:
        return sorted(self._by_id.values(), key=lambda token: (token.created_s, token.id))

    def get(self, id_: str) -> Token | None:
        return self._by_id.get(id_)

    def remember(self, token: Token) -> None:
        self._by_id[token.id] = token


def store_token(connection: sqlite3.Connection, token: Token) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            token.id,
            token.digest,
            token.name,
            token.role.value,
            token.tenant,
            token.created_s,
            token.expires_s,
            token.revoked_s,
        ),
    )


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _from_row(row: sqlite3.Row) -> Token:
    return Token(**{**dict(row), "role": Role(row["role"])})
