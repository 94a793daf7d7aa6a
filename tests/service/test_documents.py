"""Every response of the API has a declared model, and is checked against it before it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from fairlead.service.api import routes_cluster, routes_jobs, routes_tokens
from fairlead.service.api.app import build_app, document
from fairlead.service.store.database import open_writer
from fairlead.service.store.tables import EVENTS
from serving import World, world

ROUTES = [
    route
    for part in (routes_jobs, routes_cluster, routes_tokens)
    for route in part.router.routes
    if isinstance(route, APIRoute)
]


@pytest.fixture
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{sorted(route.methods)[0]} {route.path}")
def test_a_route_returns_a_document_and_not_a_finished_response(route: APIRoute) -> None:
    """FastAPI sends a finished response without a look at it."""
    kind = route.response_model

    assert isinstance(kind, type)
    assert not issubclass(kind, Response)
    assert issubclass(kind, BaseModel) or hasattr(kind, "__pydantic_config__")


def test_no_document_is_a_free_object(here: World) -> None:
    paths = document(build_app(here.service))["paths"]
    schemas = {
        f"{method} {path}": answer["content"]["application/json"]["schema"]
        for path, methods in paths.items()
        for method, operation in methods.items()
        for status, answer in operation["responses"].items()
        if status.startswith("2") and "application/json" in answer.get("content", {})
    }

    assert len(schemas) >= len(ROUTES)
    assert [place for place, schema in schemas.items() if "$ref" not in schema] == []


@pytest.mark.parametrize(
    ("statement", "path"),
    [
        ("UPDATE nodes SET gpus = 'many'", "/v1/nodes"),
        ("INSERT INTO tenants VALUES ('ann', 'heavy', '{\"quotas\": []}')", "/v1/tenants"),
        ("UPDATE facts SET value = '{\"name\": 7, \"parameters\": {}}' WHERE name = 'policy'", "/v1/status"),
    ],
)
def test_a_row_that_breaks_its_declaration_is_not_sent(here: World, statement: str, path: str) -> None:
    assert here.client.get(path, headers=here.admin).status_code == 200
    with closing(open_writer(here.service.directory.events, EVENTS)) as connection:
        connection.execute(statement)

    answer = here.client.get(path, headers=here.admin)

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")


def test_a_status_describes_the_scheduler(here: World) -> None:
    status: dict[str, Any] = here.client.get("/v1/status", headers=here.admin).json()

    assert status["scheduler"]["ready"] is True
    assert status["gpus"]["v100"] == {"total": 4, "up": 4, "held": 0}
