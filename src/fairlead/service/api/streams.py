"""Streams: logs of a job, events as they happen, the whole journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from fairlead.model.public_job import ENDED_PHASES
from fairlead.rounds.records import to_line
from fairlead.service.api.access import refuse_confined, scope_of
from fairlead.service.api.context import Caller, Service, ServiceContext
from fairlead.service.api.error_responses import ApiError
from fairlead.service.api.routes_cluster import only_of
from fairlead.service.api.routes_jobs import JobId, find
from fairlead.service.store.tokens import Token

router = APIRouter(prefix="/v1", tags=["streams"])
_CHUNK = 1 << 16
_RECORDS = 500
_PAUSE_S = 0.2
# A quiet stream sends a blank message after this time, which also detects a client that has gone.
_QUIET_S = 15.0


@router.get("/jobs/{id}/logs", response_class=StreamingResponse, responses={200: {"content": {"text/plain": {}}}})
async def logs(
    id: JobId,  # noqa: A002
    caller: Caller,
    service: Service,
    follow: bool = False,
    lease: Annotated[int | None, Query(ge=1, le=10**9, description="Only the log of this lease.")] = None,
) -> StreamingResponse:
    """Standard output and error of the job's leases, one after another; `follow` continues until the job has ended."""
    job = find(service, id, caller)
    first, last = (1, None) if lease is None else (lease, lease)
    body = _logs(service, job.id, caller, first, last, follow)
    return _stream(service, caller, body, "text/plain; charset=utf-8")


@router.get("/events", response_class=StreamingResponse, responses={200: {"content": {"application/x-ndjson": {}}}})
async def events(
    caller: Caller,
    service: Service,
    after: Annotated[int | None, Query(ge=0, le=2**62, description="Number of the last event known.")] = None,
    follow: bool = False,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    accept: Annotated[str, Header()] = "",
) -> StreamingResponse:
    """The log after `after` (with `follow`, by default from now on), as JSON lines or server-sent events.

    Continue from the last `seq`. If fewer than `limit` events were sent, continue from the header Fairlead-Last-Seq if
    that is later: this token may not see the events in between.
    """
    sse = "text/event-stream" in accept
    last = service.reads.last_seq()
    start = after if after is not None else last if follow else 0
    body = _events(service, caller, start, None if follow else limit, sse)
    kind = "text/event-stream" if sse else "application/x-ndjson"
    return _stream(service, caller, body, kind, {"Fairlead-Last-Seq": str(last)})


@router.get("/journal", response_class=StreamingResponse, responses={200: {"content": {"application/x-ndjson": {}}}})
async def journal(caller: Caller, service: Service) -> StreamingResponse:
    """The whole log as a journal file: `fairlead replay` and `fairlead audit` read it."""
    refuse_confined(caller)
    return _stream(service, caller, _journal(service), "application/x-ndjson")


async def _logs(
    service: ServiceContext, job: str, caller: Token, first: int, last: int | None, follow: bool
) -> AsyncIterator[bytes]:
    number, offset = first, 0
    while True:
        # Looked up before reading, so that output from just before the end is not missed.
        now = service.reads.job(job, scope_of(caller))
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
            if not service.still_valid(caller):
                return


async def _events(
    service: ServiceContext, caller: Token, after: int, left: int | None, sse: bool
) -> AsyncIterator[bytes]:
    """Events after `after`; `left` counts those that are sent, not those that this token may not see."""
    quiet_s, tenant = 0.0, scope_of(caller)
    while service.still_valid(caller):
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
            await asyncio.sleep(0)  # lets other requests run
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
    """The part of an event that the tenant may see; None if there is none."""
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
    service: ServiceContext, caller: Token, body: AsyncIterator[bytes], kind: str, headers: dict[str, str] | None = None
) -> StreamingResponse:
    """A response that counts towards the token's open streams and ends with its validity, checked at each chunk."""
    if service.streams.get(caller.id, 0) >= service.limits.streams:
        raise ApiError(429, "too_many_streams", "this token has too many open streams", "close one of them")

    async def counted() -> AsyncIterator[bytes]:
        service.streams[caller.id] = service.streams.get(caller.id, 0) + 1
        try:
            async for chunk in body:
                if not service.still_valid(caller):
                    return
                yield chunk
        finally:
            service.streams[caller.id] -= 1

    return StreamingResponse(counted(), headers=headers, media_type=kind)
