"""The dashboard: pages for the browser over the same functions and the same access rules as the REST API."""
