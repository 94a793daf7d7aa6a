"""The REST API under /v1: routes, documents, access and errors. `store` reads and writes the data."""
