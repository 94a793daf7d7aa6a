"""The REST API under /v1: routes, documents, access and errors. What it shows and writes is in `store`."""
