"""The permissions of roles, as a literal table. A route that is absent is denied, even to admins."""

from __future__ import annotations

from fastapi import Request

from fairlead.service.api.error_responses import ApiError
from fairlead.service.store.tokens import Role, Token

_ALL = frozenset(Role) - {Role.METRICS}
_CHANGES_JOBS = frozenset({Role.ADMIN, Role.MEMBER})
_ADMIN = frozenset({Role.ADMIN})

RULES: dict[tuple[str, str], frozenset[Role]] = {
    ("GET", "/v1/openapi.json"): _ALL,
    ("GET", "/v1/me"): _ALL,
    ("GET", "/v1/status"): _ALL,
    ("POST", "/v1/jobs"): _CHANGES_JOBS,
    ("GET", "/v1/jobs"): _ALL,
    ("GET", "/v1/jobs/{id}"): _ALL,
    ("GET", "/v1/jobs/{id}/explain"): _ALL,
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
    ("PUT", "/v1/tenants/{name}/limits"): _ADMIN,
    ("PUT", "/v1/limits"): _ADMIN,
    ("GET", "/v1/policy"): _ALL,
    ("PUT", "/v1/policy"): _ADMIN,
    ("GET", "/v1/shares"): _ALL,
    ("GET", "/v1/audit"): _ALL,
    ("GET", "/v1/decisions"): _ALL,
    ("GET", "/v1/events"): _ALL,
    ("GET", "/v1/journal"): frozenset({Role.ADMIN, Role.VIEWER}),
    ("GET", "/v1/estimates"): _ALL,
    ("GET", "/v1/snapshot"): _ADMIN,
    ("GET", "/v1/tokens"): _ADMIN,
    ("POST", "/v1/tokens"): _ADMIN,
    ("DELETE", "/v1/tokens/{id}"): _ADMIN,
    ("GET", "/v1/changes"): _ADMIN,
    ("GET", "/metrics"): frozenset({Role.ADMIN, Role.METRICS}),
}


_OF_THE_SERVICE = ("/v1/tokens", "/v1/policy")  # can be changed also if the service only watches


async def allowed(request: Request) -> Token:
    """The token of the request, if the table lets its role do this."""
    token: Token = request.state.token
    check_rule(token, (request.method, request.scope["route"].path), request.app.state.service.only_watches)
    return token


def check_rule(token: Token, route: tuple[str, str], only_watches: bool) -> None:
    """Raise an error if the role of the token may not use the route, or if the service only watches."""
    if token.role not in RULES.get(route, frozenset()):
        raise ApiError(403, "not_allowed", f"a token of role {token.role} may not do this", "ask an admin")
    method, path = route
    if only_watches and method != "GET":
        _refuse_change(path)


def _refuse_change(path: str) -> None:
    """Refuse what would change jobs, nodes or tenants of a cluster that is only watched."""
    if not path.startswith(_OF_THE_SERVICE):
        raise ApiError(
            409,
            "only_watches",
            "this service only watches Slurm and changes nothing",
            "use sbatch, scancel, scontrol and sacctmgr, or a service that was started without --shadow",
        )


def scope_of(token: Token) -> str | None:
    """The tenant to which the token is restricted; None if it sees the jobs of all tenants."""
    return None if token.role is Role.ADMIN else token.tenant


def refuse_confined(token: Token) -> None:
    """Refuse a token of one tenant, for routes that show the jobs of all tenants."""
    if scope_of(token) is not None:
        raise ApiError(403, "not_allowed", "this shows jobs of all tenants", "use a token without a tenant")
