"""Whatever the OpenAPI document allows, and what it does not, is answered as the document says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fairlead.service.api.access import RULES
from fairlead.service.api.app import build_app
from fairlead.service.api.limits import Limits
from serving import World, world
from waiting import PATIENCE_S

# The audit and the snapshot start a process for each answer; the other tests see them.
OPERATIONS = [rule for rule in RULES if rule[1] not in ("/v1/openapi.json", "/v1/audit", "/v1/snapshot")]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("api"), Limits(requests_per_s=1e9, burst=1e9)) as made:
        made.submit()
        made.take()
        yield made


@pytest.fixture(scope="module")
def schema(here: World) -> Any:
    return schemathesis.openapi.from_dict(build_app(here.service).openapi())


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "not allowed"])
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_document_holds(here: World, schema: Any, method: str, path: str, mode: GenerationMode) -> None:
    operation = schema[path][method]
    if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.path_parameters):
        pytest.skip("nothing can be wrong with it")

    @given(st.data())
    @settings(max_examples=5)
    def check(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        if case.query:
            case.query.pop("follow", None)  # it would never end
            case.query.pop("promises", None)  # it would start a process for each answer
        response = case.call(str(here.client.base_url).rstrip("/"), headers=here.admin, timeout=PATIENCE_S)
        case.validate_response(response, checks=CHECKS)

    check()
