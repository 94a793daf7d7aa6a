"""Links of the OpenAPI document: where the ids and names of an answer can be used next.

Readers find their way by them, and tests that make up requests reach states that single requests do not reach.
"""

from __future__ import annotations

from typing import Any

_JOB = "/v1/jobs/{id}"
_OF_JOB = (
    ("GET", _JOB),
    ("GET", f"{_JOB}/explain"),
    ("GET", f"{_JOB}/logs"),
    ("POST", f"{_JOB}/cancel"),
    ("POST", f"{_JOB}/hold"),
    ("POST", f"{_JOB}/release"),
)
_OF_NODE = (("POST", "/v1/nodes/{name}/drain"), ("POST", "/v1/nodes/{name}/resume"), ("DELETE", "/v1/nodes/{name}"))
_OF_TENANT = (("PUT", "/v1/tenants/{name}"), ("PUT", "/v1/tenants/{name}/limits"))

# (method, path, status, value in the message) -> operations that take it as the parameter of their path.
LINKS: dict[tuple[str, str, str, str], tuple[tuple[str, str], ...]] = {
    ("POST", "/v1/jobs", "201", "$response.body#/id"): _OF_JOB,
    ("GET", "/v1/jobs", "200", "$response.body#/jobs/0/id"): _OF_JOB,
    ("POST", f"{_JOB}/hold", "202", "$response.body#/id"): _OF_JOB,
    ("POST", f"{_JOB}/release", "202", "$response.body#/id"): _OF_JOB,
    ("GET", "/v1/nodes", "200", "$response.body#/nodes/0/name"): _OF_NODE,
    ("POST", "/v1/nodes", "202", "$request.body#/name"): _OF_NODE,
    ("GET", "/v1/tenants", "200", "$response.body#/tenants/0/name"): _OF_TENANT,
    ("POST", "/v1/tokens", "201", "$response.body#/id"): (("DELETE", "/v1/tokens/{id}"),),
}


def with_links(schema: dict[str, Any]) -> dict[str, Any]:
    """The document with the links in its answers. A table that names what the document lacks is our mistake."""
    paths = schema["paths"]
    for (method, path, status, value), targets in LINKS.items():
        links = paths[path][method.lower()]["responses"][status].setdefault("links", {})
        for target_method, target in targets:
            operation = paths[target][target_method.lower()]
            parameter = "id" if "{id}" in target else "name"
            links[operation["operationId"]] = {
                "operationId": operation["operationId"],
                "parameters": {f"path.{parameter}": value},
            }
    return schema
