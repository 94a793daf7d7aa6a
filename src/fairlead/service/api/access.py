"""The permissions of roles, as a literal table. A route that is absent is denied, even to admins."""

from __future__ import annotations

from fastapi import Request

from fairlead.service.api.error_responses import ApiError
from fairlead.service.store.tokens import Role, Token

_ALL = frozenset(Role)
_CHANGES_JOBS = frozenset({Role.ADMIN, Role.MEMBER})
_ADMIN = frozenset({Role.ADMIN})

RULES: dict[tuple[str, str], frozenset[Role]] = {
    ("GET", "/v1/openapi.json"): _ALL,
    ("GET", "/v1/me"): _ALL,
    ("GET", "/v1/status"): _ALL,
    ("POST", "/v1/jobs"): _CHANGES_JOBS,
    ("GET", "/v1/jobs"): _ALL,
    ("GET", "/v1/jobs/{id}"): _ALL,
    ("GET", "/v1/jobs/{id}/logs"): _ALL,
    ("POST", "/v1/jobs/{id}/cancel"): _CHANGES_JOBS,
    ("POST", "/v1/jobs/{id}/hold"): _CHANGES_JOBS,
    ("POST", "/v1/jobs/{id}/release"): _CHANGES_JOBS,
    ("GET", "/v1/nodes"): _ALL,
    ("POST", "/v1/nodes"): _ADMIN,
    ("DELETE", "/v1/nodes/{name}"): _ADMIN,
    ("POST", "/v1/nodes/{name}/drain"): _ADMIN,
    ("POST", "/v1/nodes/{name}/resume"): _ADMIN,
    ("GET", "/v1/tenants"): _ALL,
    ("PUT", "/v1/tenants/{name}"): _ADMIN,
    ("GET", "/v1/policy"): _ALL,
    ("PUT", "/v1/policy"): _ADMIN,
    ("GET", "/v1/shares"): _ALL,
    ("GET", "/v1/audit"): _ALL,
    ("GET", "/v1/decisions"): _ALL,
    ("GET", "/v1/events"): _ALL,
    ("GET", "/v1/journal"): frozenset({Role.ADMIN, Role.VIEWER}),
    ("GET", "/v1/tokens"): _ADMIN,
    ("POST", "/v1/tokens"): _ADMIN,
    ("DELETE", "/v1/tokens/{id}"): _ADMIN,
    ("GET", "/v1/changes"): _ADMIN,
}


async def allowed(request: Request) -> Token:
    """The token of the request, if the table lets its role do this."""
    token: Token = request.state.token
    roles = RULES.get((request.method, request.scope["route"].path), frozenset())
    if token.role not in roles:
        raise ApiError(403, "not_allowed", f"a token of role {token.role} may not do this", "ask an admin")
    return token


def scope_of(token: Token) -> str | None:
    """The tenant to which the token is restricted; None if it sees the jobs of all tenants."""
    return None if token.role is Role.ADMIN else token.tenant


def refuse_confined(token: Token) -> None:
    """Refuse a token of one tenant, for routes that show the jobs of all tenants."""
    if scope_of(token) is not None:
        raise ApiError(403, "not_allowed", "this shows jobs of all tenants", "use a token without a tenant")
