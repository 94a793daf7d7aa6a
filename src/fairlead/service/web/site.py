"""The whole web application of the service: the pages of the dashboard, and the REST API for all other paths."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.model.errors import FairleadError
from fairlead.service.api.app import build_app
from fairlead.service.api.context import ServiceContext
from fairlead.service.api.error_responses import ApiError
from fairlead.service.api.guard import Buckets
from fairlead.service.web import (
    pages_admin,
    pages_cluster,
    pages_decisions,
    pages_jobs,
    pages_session,
    pages_shadow,
    pages_tenants,
)
from fairlead.service.web.decision_lines import DecisionLines
from fairlead.service.web.door import Door
from fairlead.service.web.live import Pulse
from fairlead.service.web.page_cache import PageCache
from fairlead.service.web.rendering import show_error
from fairlead.service.web.sessions import Sessions

PARTS = (pages_session, pages_cluster, pages_jobs, pages_tenants, pages_decisions, pages_shadow, pages_admin)


class WebSite:
    """Sends requests for pages to the dashboard, and all others to the API. The port of metrics has no pages."""

    def __init__(self, pages: FastAPI, api: ASGIApp, first_parts: frozenset[str], metrics_port: int | None) -> None:
        self.pages, self._api, self._first_parts, self._metrics_port = pages, api, first_parts, metrics_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.pages if self._is_page(scope) else self._api)(scope, receive, send)

    def _is_page(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["path"].split("/")[1] not in self._first_parts:
            return False
        return self._metrics_port is None or scope["server"][1] != self._metrics_port


def build_site(service: ServiceContext) -> WebSite:
    pages = build_pages(service)
    paths = [getattr(route, "path", "/") for part in PARTS for route in part.router.routes]
    return WebSite(pages, build_app(service), frozenset(path.split("/")[1] for path in paths), service.metrics_port)


def build_pages(service: ServiceContext) -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.service, app.state.sessions = service, Sessions()
    app.state.pulse = Pulse(service.reads.last_seq)
    app.state.pages = PageCache(service.reads.version)
    app.state.decisions = DecisionLines()
    app.state.attempts = Buckets(service.limits.failures_per_s, service.limits.failures_burst)
    for part in PARTS:
        app.include_router(part.router)
    _show_errors(app)
    app.add_middleware(Door, tokens=service.tokens, sessions=app.state.sessions, limits=service.limits)
    return app


def _show_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> Response:
        return show_error(request, error.status, error.message, error.remedy)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, _: RequestValidationError) -> Response:
        return show_error(request, 404, "there is no such page", "go back to the overview")

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return show_error(request, error.status_code, "there is no such page", "go back to the overview")

    @app.exception_handler(FairleadError)
    async def user_error(request: Request, error: FairleadError) -> Response:
        return show_error(request, 409, str(error), None)
