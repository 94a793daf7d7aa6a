"""Who may use which page: a page has the rights of the API route whose data it shows. A page that is absent is denied."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import Depends, Request

from fairlead.service.api.access import check_rule
from fairlead.service.api.error_responses import ApiError
from fairlead.service.store.tokens import Token

# (method, path of the page) -> route of the API, whose rule applies.
PAGES: dict[tuple[str, str], tuple[str, str]] = {
    ("GET", "/"): ("GET", "/v1/nodes"),
    ("GET", "/queue"): ("GET", "/v1/jobs"),
    ("GET", "/jobs/{id}"): ("GET", "/v1/jobs/{id}"),
    ("GET", "/jobs/{id}/why"): ("GET", "/v1/jobs/{id}/explain"),
    ("GET", "/jobs/{id}/log"): ("GET", "/v1/jobs/{id}/logs"),
    ("POST", "/jobs/{id}/cancel"): ("POST", "/v1/jobs/{id}/cancel"),
    ("POST", "/jobs/{id}/hold"): ("POST", "/v1/jobs/{id}/hold"),
    ("POST", "/jobs/{id}/release"): ("POST", "/v1/jobs/{id}/release"),
    ("GET", "/tenants"): ("GET", "/v1/shares"),
    ("GET", "/tenants/audit"): ("GET", "/v1/audit"),
    ("GET", "/tenants/history"): ("GET", "/v1/audit"),
    ("GET", "/decisions"): ("GET", "/v1/decisions"),
    ("GET", "/decisions/{seq}"): ("GET", "/v1/decisions"),
    ("GET", "/shadow"): ("GET", "/v1/audit"),
    ("GET", "/shadow/report"): ("GET", "/v1/audit"),
    ("GET", "/what-if"): ("GET", "/v1/snapshot"),
    ("GET", "/what-if/answer"): ("GET", "/v1/snapshot"),
    ("GET", "/admin"): ("GET", "/v1/tokens"),
    ("POST", "/admin/policy"): ("PUT", "/v1/policy"),
    ("POST", "/admin/nodes/{name}/drain"): ("POST", "/v1/nodes/{name}/drain"),
    ("POST", "/admin/nodes/{name}/resume"): ("POST", "/v1/nodes/{name}/resume"),
    ("POST", "/admin/tenants/{name}"): ("PUT", "/v1/tenants/{name}"),
    ("POST", "/admin/tokens"): ("POST", "/v1/tokens"),
    ("POST", "/admin/tokens/{id}/revoke"): ("DELETE", "/v1/tokens/{id}"),
    ("GET", "/live"): ("GET", "/v1/events"),
}


async def permitted(request: Request) -> Token:
    """The token of the session, if the API would let it do the same."""
    route = PAGES.get((request.method, request.scope["route"].path))
    if route is None:
        raise ApiError(403, "not_allowed", "this page is not open to anybody", "go back")
    token: Token = request.state.token
    check_rule(token, route, request.app.state.service.only_watches)
    return token


def may(token: Token, page: tuple[str, str], only_watches: bool) -> bool:
    """Whether a link or a button to the page is shown."""
    try:
        check_rule(token, PAGES[page], only_watches)
    except ApiError:
        return False
    return True


def rights_only(token: Token) -> Token:
    """A token with the rights of this one, and without anything else of it."""
    return Token("", b"", "", token.role, token.tenant, 0.0, math.inf)


Visitor = Annotated[Token, Depends(permitted)]
