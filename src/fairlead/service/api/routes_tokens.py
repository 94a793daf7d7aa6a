"""Tokens, and who changed what."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from fairlead.service.api.context import What, Who
from fairlead.service.api.error_responses import no_such
from fairlead.service.jobfile import Name, seconds
from fairlead.service.store import changes as stored
from fairlead.service.store.tokens import Role, Token, new_token

router = APIRouter(prefix="/v1", tags=["admin"])
LONGEST_S = 366 * 86400.0


class NewToken(BaseModel):
    """`lifetime` in seconds, or such as "30d"."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    role: Role
    tenant: Name | None = None
    lifetime: Annotated[float, BeforeValidator(seconds), Field(gt=0, le=LONGEST_S)] = 30 * 86400.0

    @model_validator(mode="after")
    def _tenant_fits(self) -> NewToken:
        if self.role is Role.MEMBER and self.tenant is None:
            raise ValueError("a member token needs a tenant")
        if self.role is Role.ADMIN and self.tenant is not None:
            raise ValueError("an admin token has no tenant: it may do everything")
        return self


class TokenShown(BaseModel):
    id: str
    name: str
    role: Role
    tenant: str | None
    created_s: float
    expires_s: float
    revoked_s: float | None


class TokenMade(TokenShown):
    """`token` is shown here and never again."""

    token: str


class TokenList(BaseModel):
    tokens: list[TokenShown]


class Change(BaseModel):
    number: int
    time_s: float
    actor: str
    action: str
    target: str
    detail: dict[str, Any]


class Changes(BaseModel):
    changes: list[Change]


@router.get("/me", response_model=TokenShown)
async def me(who: Who) -> JSONResponse:
    """What the token of this request is."""
    return JSONResponse(_shown(who))


@router.get("/tokens", response_model=TokenList)
async def list_tokens(who: Who, service: What) -> JSONResponse:
    return JSONResponse({"tokens": [_shown(token) for token in service.tokens.all()]})


@router.post("/tokens", status_code=201, response_model=TokenMade)
async def create_token(asked: NewToken, who: Who, service: What) -> JSONResponse:
    shown, token = new_token(asked.name, asked.role, asked.tenant, time.time(), asked.lifetime)

    await service.writer.write(stored.create_token(who.actor, token))
    service.tokens.remember(token)
    return JSONResponse({**_shown(token), "token": shown}, 201)


@router.delete("/tokens/{id}", response_model=TokenShown)
async def revoke_token(
    id: Annotated[str, Path(pattern="^[0-9a-f]{12}$")],  # noqa: A002
    who: Who,
    service: What,
) -> JSONResponse:
    """It stays in the list, and opens nothing from now on."""
    token = service.tokens.get(id)
    if token is None:
        raise no_such("token", id)
    revoked = token if token.revoked_s is not None else replace(token, revoked_s=time.time())
    await service.writer.write(stored.revoke_token(who.actor, revoked))
    service.tokens.remember(revoked)
    return JSONResponse(_shown(revoked))


@router.get("/changes", response_model=Changes)
async def changes(
    who: Who,
    service: What,
    before: Annotated[int, Query(ge=0, le=2**62)] = 2**62,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JSONResponse:
    """The audit log: every change of weights, quotas, nodes, policy and tokens, newest first."""
    return JSONResponse({"changes": service.reads.changes(before, limit)})


def _shown(token: Token) -> dict[str, Any]:
    names = ("id", "name", "role", "tenant", "created_s", "expires_s", "revoked_s")
    return {name: getattr(token, name) for name in names}
