"""The REST API under /v1 as a web application: its routes, its error handlers and its OpenAPI document."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from fairlead import __version__
from fairlead.model.errors import FairleadError, ImpossibleError, InputError
from fairlead.service.api import routes_cluster, routes_future, routes_jobs, routes_metrics, routes_tokens, streams
from fairlead.service.api.access import allowed
from fairlead.service.api.context import ServiceContext
from fairlead.service.api.error_responses import ApiError, ErrorAnswer, answer, complaint
from fairlead.service.api.guard import Guard
from fairlead.service.api.links import with_links
from fairlead.service.store.admission import LimitError
from fairlead.service.store.changes import KeyReusedError
from fairlead.service.store.database import DiskFullError


def build_app(service: ServiceContext) -> FastAPI:
    app = FastAPI(
        title="Fairlead",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        responses={status: {"model": ErrorAnswer} for status in (400, 401, 403, 404, 409, 410, 413, 422, 429, 507)},
    )
    app.state.service = service
    for part in (routes_jobs, streams, routes_cluster, routes_future, routes_tokens, routes_metrics):
        app.include_router(part.router, dependencies=[Depends(allowed)])
    app.include_router(routes_metrics.probes)

    @app.get("/v1/openapi.json", include_in_schema=False, dependencies=[Depends(allowed)])
    async def openapi() -> JSONResponse:
        return JSONResponse(document(app))

    _answer_errors(app)
    app.add_middleware(Guard, tokens=service.tokens, limits=service.limits, metrics_port=service.metrics_port)
    return app


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, which also states that a token is required and where ids of answers can be used."""
    schema = with_links(dict(app.openapi()))
    components = {**schema.get("components", {}), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    return {**schema, "components": components, "security": [{"token": []}]}


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def api_error(_: Request, error: ApiError) -> JSONResponse:
        return error.answer()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return answer(422, "invalid_request", complaint(error.errors()), "correct it and send it again")

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        codes = {404: "no_such_path", 405: "no_such_method", 413: "too_large"}
        return answer(error.status_code, codes.get(error.status_code, "bad_request"), str(error.detail))

    @app.exception_handler(FairleadError)
    async def user_error(_: Request, error: FairleadError) -> JSONResponse:
        if isinstance(error, DiskFullError):
            return answer(507, "disk_full", str(error), "free some space on the disk of the state directory")
        if isinstance(error, KeyReusedError):
            return answer(409, "idempotency_conflict", str(error), "use a new key for a new job")
        if isinstance(error, LimitError):
            status = 429 if error.retry_s is not None else 403
            return answer(status, error.code, str(error), error.remedy, error.retry_s or 1)
        if isinstance(error, ImpossibleError):
            return answer(422, "can_never_run", str(error), "ask for GPUs that the cluster has")
        if isinstance(error, InputError):
            return answer(422, "invalid_request", str(error), "correct it and send it again")
        return answer(409, "refused", str(error))
