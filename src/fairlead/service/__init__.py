"""The service: `store` (all files and SQL), `api` (REST), `process` (its processes), job files and a client."""
