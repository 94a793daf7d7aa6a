"""Streams: logs of a job, events as they happen, the whole journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from fairlead.engines.leases import Key
from fairlead.model.limits import EVERY_TENANT
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
    tail: Annotated[
        int | None, Query(ge=1, le=1 << 20, description="Begin this many bytes before the end of the newest lease.")
    ] = None,
) -> StreamingResponse:
    """Standard output and error of the job's leases, one after another; `follow` continues until the job has ended."""
    job = find(service, id, caller)
    first, last = (1, None) if lease is None else (lease, lease)
    offset = 0
    if tail is not None:
        first = lease or max(job.leases, 1)
        offset = max(_log_bytes(service, (job.id, first)) - tail, 0)
    body = _logs(service, job.id, caller, first, last, follow, offset)
    return stream(service, caller, body, "text/plain; charset=utf-8")


@router.get("/events", response_class=StreamingResponse, responses={200: {"content": {"application/x-ndjson": {}}}})
async def events(
    caller: Caller,
    service: Service,
    after: Annotated[int | None, Query(ge=0, le=2**62, description="Number of the last event known.")] = None,
    follow: bool = False,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    accept: Annotated[str, Header()] = "",
) -> StreamingResponse:
    """The log after `after`, as JSON lines or server-sent events.

    By default, events are sent from the first one that is not archived, or with `follow` from now on. Continue from the
    last `seq`. If fewer than `limit` events were sent, continue from the header Fairlead-Last-Seq if that is later: this
    token may not see the events in between. Events that follow `after` and are archived are an error.
    """
    sse = "text/event-stream" in accept
    last, archived = service.reads.last_seq(), service.reads.archived_seq()
    if after is not None and after < archived:
        raise _is_archived(archived)
    start = after if after is not None else last if follow else archived
    body = _events(service, caller, start, None if follow else limit, sse)
    kind = "text/event-stream" if sse else "application/x-ndjson"
    return stream(service, caller, body, kind, {"Fairlead-Last-Seq": str(last)})


@router.get("/journal", response_class=StreamingResponse, responses={200: {"content": {"application/x-ndjson": {}}}})
async def journal(caller: Caller, service: Service) -> StreamingResponse:
    """The log as a journal file, without what is archived: `fairlead replay` and `fairlead audit` read it."""
    refuse_confined(caller)
    return stream(service, caller, _journal(service), "application/x-ndjson")


async def _logs(
    service: ServiceContext, job: str, caller: Token, first: int, last: int | None, follow: bool, offset: int
) -> AsyncIterator[bytes]:
    """The logs of leases from `first`, there from `offset`, to `last` or to the newest one."""
    number = first
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


def _log_bytes(service: ServiceContext, key: Key) -> int:
    """The size of a log, found by reading single bytes: no engine has to know more than how to read."""
    low, high = 0, 1
    while service.reads.leases.read_log(key, high - 1, 1):
        low, high = high, 2 * high
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if service.reads.leases.read_log(key, middle - 1, 1) else (low, middle)
    return low


async def _events(
    service: ServiceContext, caller: Token, after: int, left: int | None, sse: bool
) -> AsyncIterator[bytes]:
    """Events after `after`; `left` counts those that are sent, not those that this token may not see."""
    quiet_s, tenant = 0.0, scope_of(caller)
    while service.still_valid(caller):
        records = service.reads.records(after, _RECORDS)
        _refuse_gap(records, after)
        for seq, record in records:
            if left == 0:
                return
            after = seq
            shown = record if tenant is None else of_tenant(service, record, tenant)
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
    header, after = service.reads.first_line()
    yield f"{header}\n".encode()
    while records := service.reads.records(after, _RECORDS):
        _refuse_gap(records, after)
        after = records[-1][0]
        yield "".join(f"{to_line(record)}\n" for _, record in records).encode()
        await asyncio.sleep(0)


def _refuse_gap(records: Sequence[tuple[int, Any]], after: int) -> None:
    """Break off an answer that would have a gap, because it would look whole."""
    if records and records[0][0] != after + 1:
        raise RuntimeError(f"record {after + 1} went into the archive while the log was read; read it again")


def _is_archived(archived: int) -> ApiError:
    return ApiError(
        410,
        "events_archived",
        f"the events up to {archived} are archived",
        f"continue with after={archived}; earlier events are in archive/*.journal.gz of the state directory, "
        "which `fairlead archive` lists there",
    )


def of_tenant(service: ServiceContext, record: dict[str, Any], tenant: str) -> dict[str, Any] | None:
    """The part of an event that the tenant may see; None if there is none."""
    kind = record["event"]
    if kind == "arrived":
        return record if record["job"]["tenant"] == tenant else None
    if kind in ("tenant_set", "limits_set"):
        return record if record["tenant"] in (tenant, EVERY_TENANT) else None
    if kind in ("decision", "advised"):
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


class CountedStream(StreamingResponse):
    """A stream that counts towards its token's open streams, from the check of their number until it has ended.

    It inherits because only a response knows when it ends, also if its client has gone before the first chunk.
    """

    def __init__(self, service: ServiceContext, caller: Token, body: AsyncIterator[bytes], **more: Any) -> None:
        super().__init__(body, **more)
        self._service, self._caller = service, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        streams, key = self._service.streams, self._caller.id
        if streams.get(key, 0) >= self._service.limits.streams:
            refusal = ApiError(429, "too_many_streams", "this token has too many open streams", "close one of them")
            await refusal.answer()(scope, receive, send)
            return
        streams[key] = streams.get(key, 0) + 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            streams[key] -= 1
            if not streams[key]:
                del streams[key]


def stream(
    service: ServiceContext, caller: Token, body: AsyncIterator[bytes], kind: str, headers: dict[str, str] | None = None
) -> StreamingResponse:
    """A response that ends with the validity of its token, checked at each chunk."""

    async def while_valid() -> AsyncIterator[bytes]:
        async for chunk in body:
            if not service.still_valid(caller):
                return
            yield chunk

    return CountedStream(service, caller, while_valid(), headers=headers, media_type=kind)
