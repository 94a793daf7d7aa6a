"""The service: `store` (everything on disk, all SQL), `api` (REST), `process` (what runs), and a client of it."""
