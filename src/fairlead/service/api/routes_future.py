"""The future: when waiting jobs will start, and the state of the service, from which anyone can simulate more."""

from __future__ import annotations

from fastapi import APIRouter, Response

from fairlead.service.api.access import scope_of
from fairlead.service.api.context import Caller, Service
from fairlead.service.api.documents import EstimateList
from fairlead.service.api.snapshots import snapshot_apart
from fairlead.service.store.estimates_file import read_estimates

router = APIRouter(prefix="/v1", tags=["future"])


@router.get("/snapshot", response_class=Response, responses={200: {"content": {"application/x-ndjson": {}}}})
async def snapshot(caller: Caller, service: Service, anonymise: bool = False) -> Response:
    """The whole state as a snapshot file, with the jobs of all tenants; `anonymise` leaves out all names."""
    async with service.auditing:
        return Response(await snapshot_apart(service.directory, anonymise=anonymise), media_type="application/x-ndjson")


@router.get("/estimates")
def estimates(caller: Caller, service: Service) -> EstimateList:
    """When jobs that wait will start, as last estimated; only those of the token's tenant if it has one."""
    mine, newest = scope_of(caller), read_estimates(service.directory)
    off = service.no_estimates
    if newest is None or off is not None:
        return EstimateList(reason=off or "none were made yet; the first come within a minute after a job has to wait")
    shown = [one for one in newest.estimates if mine is None or one.tenant == mine]
    other = "the newest estimates are from before these jobs had to wait" if not shown else None
    return EstimateList(
        time_s=newest.time_s,
        until_s=newest.until_s,
        policy=newest.policy,
        chance=newest.chance,
        estimates=shown,
        reason=newest.reason or other,
        held=newest.held,
        checked=newest.checked,
    )
