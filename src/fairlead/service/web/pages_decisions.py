"""Decisions, one after another: what came in, what was decided, and why."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from fairlead.model.outcomes import REASON_OF_CODE, sentence
from fairlead.service.api import routes_cluster
from fairlead.service.api.access import scope_of
from fairlead.service.api.context import Service, ServiceContext
from fairlead.service.api.error_responses import no_such
from fairlead.service.api.streams import of_tenant
from fairlead.service.store.tokens import Token
from fairlead.service.web.decision_lines import DecisionLines
from fairlead.service.web.event_words import words_of
from fairlead.service.web.rendering import show, show_shared
from fairlead.service.web.rights import Visitor

router = APIRouter()
PAGE = 50
_MOST_EVENTS = 1000  # before one decision

Seq = Annotated[int, Path(ge=1, le=2**62)]


@router.get("/decisions")
async def decisions(
    request: Request, visitor: Visitor, before: Annotated[int, Query(ge=0, le=2**62)] = 2**62
) -> Response:
    """The newest decisions first, with the jobs that the visitor may see."""
    return await show_shared(request, "decisions.html.j2", _decisions, request.app.state.decisions, before)


def _decisions(service: ServiceContext, reader: Token, lines: DecisionLines, before: int) -> dict[str, Any]:
    rows = lines.newest(service, scope_of(reader), before, PAGE)
    return {"title": "Decisions", "rows": rows, "newest": before == 2**62, "page": PAGE}


@router.get("/decisions/{seq}")
async def decision(request: Request, seq: Seq, visitor: Visitor, service: Service) -> Response:
    """One decision: the events since the one before it, what stops, what starts where, and why jobs wait."""
    page = (await routes_cluster.decisions(visitor, service, seq + 1, 2)).decisions
    if not page or page[0].seq != seq:
        raise no_such("decision", str(seq))
    row, earlier = page[0].model_dump(), page[1].seq if len(page) > 1 else None
    mine = scope_of(visitor)
    return show(
        request,
        "decision.html.j2",
        title=f"Decision {seq}",
        row=row,
        took_s=service.took_s(row["time_s"]),
        earlier=earlier,
        later=service.reads.next_decision(seq),
        events=_events(service, earlier or service.reads.archived_seq(), seq, mine),
        reasons=[_reason(id_, numbers, row) for id_, numbers in row.get("why", {}).items()],
    )


def _events(service: ServiceContext, after: int, before: int, tenant: str | None) -> list[str]:
    """What came in between two records, in words, as far as the tenant may see it."""
    records = [record for seq, record in service.reads.records(after, _MOST_EVENTS) if seq < before]
    shown = records if tenant is None else [of_tenant(service, record, tenant) for record in records]
    return words_of([record for record in shown if record is not None])


def _reason(id_: str, numbers: list[Any], row: dict[str, Any]) -> dict[str, Any]:
    """A waiting job with its reason in words and the policy's own numbers."""
    code, wanted, free, a, b, *terms = numbers
    words = sentence(REASON_OF_CODE[code], wanted, free, a, b, row["time_s"])
    return {"job": id_, "code": code, "words": words, "terms": dict(zip(row.get("terms", ()), terms, strict=False))}
