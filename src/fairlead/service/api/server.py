"""The web server of the API process. Imported late, so that the scheduler starts at the same time."""

from __future__ import annotations

import uvicorn

from fairlead.service.api.app import build_app
from fairlead.service.api.context import ServiceContext

__all__ = ["ServiceContext", "build_server"]


def build_server(service: ServiceContext) -> uvicorn.Server:
    """The web server, without a log of requests, which would contain private data."""
    config = uvicorn.Config(
        build_app(service), log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=3
    )
    return uvicorn.Server(config)
