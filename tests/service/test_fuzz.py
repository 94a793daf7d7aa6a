"""A short form of `make fuzz`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fuzz
from fairlead.service.api.app import build_app, document
from fairlead.service.api.links import LINKS
from serving import world


@pytest.mark.slow
def test_chains_of_made_up_requests_are_answered_as_the_document_says(tmp_path: Path) -> None:
    assert fuzz.main(12.0) == 0


def test_every_link_names_an_operation_and_its_parameter(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        schema = document(build_app(here.service))
    operations: dict[str, Any] = {
        operation["operationId"]: operation for path in schema["paths"].values() for operation in path.values()
    }
    for method, path, status, _ in LINKS:
        for link in schema["paths"][path][method.lower()]["responses"][status]["links"].values():
            (parameter,) = link["parameters"]
            names = [f"path.{p['name']}" for p in operations[link["operationId"]]["parameters"] if p["in"] == "path"]
            assert names == [parameter]
