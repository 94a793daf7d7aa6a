"""What flows: logs of a job, events as they happen, the whole journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from fairlead.model.public_job import ENDED_PHASES
from fairlead.rounds.records import to_line
from fairlead.service.api.access import confined, scope_of
from fairlead.service.api.context import ServiceContext, What, Who
from fairlead.service.api.error_responses import ApiError
from fairlead.service.api.routes_cluster import only_of
from fairlead.service.api.routes_jobs import JobId, find
from fairlead.service.store.tokens import Token

router = APIRouter(prefix="/v1", tags=["streams"])
_CHUNK = 1 << 16
_RECORDS = 500
_PAUSE_S = 0.2
# A stream that has nothing to say says so, which also finds out whether somebody still listens.
_QUIET_S = 15.0


@router.get("/jobs/{id}/logs", response_class=StreamingResponse, responses={200: {"content": {"text/plain": {}}}})
async def logs(
    id: JobId,  # noqa: A002
    who: Who,
    service: What,
    follow: bool = False,
    lease: Annotated[int | None, Query(ge=1, le=10**9, description="Of this lease only.")] = None,
) -> StreamingResponse:
    """Standard output and error of the job's leases, one after another; `follow` goes on until the job has ended."""
    job = find(service, id, who)
    first, last = (1, None) if lease is None else (lease, lease)
    body = _logs(service, job.id, who, first, last, follow)
    return _stream(service, who, body, "text/plain; charset=utf-8")


@router.get("/events", response_class=StreamingResponse, responses={200: {"content": {"application/x-ndjson": {}}}})
async def events(
    who: Who,
    service: What,
    after: Annotated[int | None, Query(ge=0, le=2**62, description="Number of the last event known.")] = None,
    follow: bool = False,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    accept: Annotated[str, Header()] = "",
) -> StreamingResponse:
    """The log from `after` on (with `follow`: from now), a JSON object a line, or server-sent events if asked to.

    Go on from the last `seq`; where fewer than `limit` came, from the header Fairlead-Last-Seq if that is later: what lies
    between is not for this token.
    """
    sse = "text/event-stream" in accept
    last = service.reads.last_seq()
    start = after if after is not None else last if follow else 0
    body = _events(service, who, start, None if follow else limit, sse)
    kind = "text/event-stream" if sse else "application/x-ndjson"
    return _stream(service, who, body, kind, {"Fairlead-Last-Seq": str(last)})


@router.get("/journal", response_class=StreamingResponse, responses={200: {"content": {"application/x-ndjson": {}}}})
async def journal(who: Who, service: What) -> StreamingResponse:
    """The whole log as a journal file: `fairlead replay` and `fairlead audit` read it."""
    confined(who)
    return _stream(service, who, _journal(service), "application/x-ndjson")


async def _logs(
    service: ServiceContext, job: str, who: Token, first: int, last: int | None, follow: bool
) -> AsyncIterator[bytes]:
    number, offset = first, 0
    while True:
        # Looked up before reading, so that what was written before the end is read after it.
        now = service.reads.job(job, scope_of(who))
        while chunk := service.reads.leases.read_log((job, number), offset, _CHUNK):
            offset += len(chunk)
            yield chunk
        if now is None:
            return
        if number < min(last or now.leases, now.leases):
            number, offset = number + 1, 0
        elif not follow or now.phase in ENDED_PHASES or (last is not None and number < now.leases):
            return
        else:
            await asyncio.sleep(_PAUSE_S)
            if not service.still_valid(who):
                return


async def _events(service: ServiceContext, who: Token, after: int, left: int | None, sse: bool) -> AsyncIterator[bytes]:
    """`left` counts what is shown: a token that sees little looks further, and misses nothing."""
    quiet_s, tenant = 0.0, scope_of(who)
    while service.still_valid(who):
        records = service.reads.records(after, _RECORDS)
        for seq, record in records:
            if left == 0:
                return
            after = seq
            shown = record if tenant is None else _of_tenant(service, record, tenant)
            if shown is not None:
                left = None if left is None else left - 1
                line = to_line({"seq": seq, **shown})
                yield (f"id: {seq}\ndata: {line}\n\n" if sse else f"{line}\n").encode()
        if records:
            quiet_s = 0.0
            await asyncio.sleep(0)  # others have their turn
        elif left is not None:
            return
        else:
            await asyncio.sleep(_PAUSE_S)
            quiet_s += _PAUSE_S
            if quiet_s >= _QUIET_S:
                quiet_s = 0.0
                yield f"id: {after}\n: nothing new\n\n".encode() if sse else b"\n"


async def _journal(service: ServiceContext) -> AsyncIterator[bytes]:
    yield f"{service.reads.header_line()}\n".encode()
    after = 0
    while records := service.reads.records(after, _RECORDS):
        after = records[-1][0]
        yield "".join(f"{to_line(record)}\n" for _, record in records).encode()
        await asyncio.sleep(0)


def _of_tenant(service: ServiceContext, record: dict[str, Any], tenant: str) -> dict[str, Any] | None:
    """What the tenant may know of an event; None: nothing."""
    kind = record["event"]
    if kind == "arrived":
        return record if record["job"]["tenant"] == tenant else None
    if kind == "tenant_set":
        return record if record["tenant"] == tenant else None
    if kind == "decision":
        own = only_of(service, record, tenant)
        return own if own["stop"] or own["start"] else None
    if "jobs" not in record:
        return record
    owner = service.reads.tenants_of(record["jobs"])
    keep = [place for place, id_ in enumerate(record["jobs"]) if owner.get(id_) == tenant]
    if not keep:
        return None
    return {
        name: [value[place] for place in keep] if isinstance(value, list) else value for name, value in record.items()
    }


def _stream(
    service: ServiceContext, who: Token, body: AsyncIterator[bytes], kind: str, headers: dict[str, str] | None = None
) -> StreamingResponse:
    """One of few that a token may have open, for as long as it is valid. What has nothing to say has to look itself."""
    if service.streams.get(who.id, 0) >= service.limits.streams:
        raise ApiError(429, "too_many_streams", "this token has too many open streams", "close one of them")

    async def counted() -> AsyncIterator[bytes]:
        service.streams[who.id] = service.streams.get(who.id, 0) + 1
        try:
            async for chunk in body:
                if not service.still_valid(who):
                    return
                yield chunk
        finally:
            service.streams[who.id] -= 1

    return StreamingResponse(counted(), headers=headers, media_type=kind)
