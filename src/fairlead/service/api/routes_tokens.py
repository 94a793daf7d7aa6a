"""Routes of tokens and of the audit log."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query

from fairlead.service.api.context import Caller, Service
from fairlead.service.api.documents import ChangePage, CreatedToken, NewToken, TokenList, TokenState
from fairlead.service.api.error_responses import no_such
from fairlead.service.store import changes as stored
from fairlead.service.store.tokens import new_token

router = APIRouter(prefix="/v1", tags=["admin"])


@router.get("/me")
async def me(caller: Caller) -> TokenState:
    """The token of this request."""
    return TokenState.model_validate(caller)


@router.get("/tokens")
async def list_tokens(caller: Caller, service: Service) -> TokenList:
    return TokenList(tokens=[TokenState.model_validate(token) for token in service.tokens.all()])


@router.post("/tokens", status_code=201)
async def create_token(new: NewToken, caller: Caller, service: Service) -> CreatedToken:
    secret, token = new_token(new.name, new.role, new.tenant, time.time(), new.lifetime)

    await service.writer.write(stored.create_token(caller.actor, token))
    service.tokens.remember(token)
    return CreatedToken(**TokenState.model_validate(token).model_dump(), token=secret)


@router.delete("/tokens/{id}")
async def revoke_token(
    id: Annotated[str, Path(pattern="^[0-9a-f]{12}$")],  # noqa: A002
    caller: Caller,
    service: Service,
) -> TokenState:
    """Revoke a token. It stays in the list but is no longer accepted."""
    token = service.tokens.get(id)
    if token is None:
        raise no_such("token", id)
    revoked = token if token.revoked_s is not None else replace(token, revoked_s=time.time())
    await service.writer.write(stored.revoke_token(caller.actor, revoked))
    service.tokens.remember(revoked)
    return TokenState.model_validate(revoked)


@router.get("/changes")
async def changes(
    caller: Caller,
    service: Service,
    before: Annotated[int, Query(ge=0, le=2**62)] = 2**62,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ChangePage:
    """The audit log: every change of weights, quotas, nodes, policy and tokens, newest first."""
    return ChangePage(changes=service.reads.changes(before, limit))
