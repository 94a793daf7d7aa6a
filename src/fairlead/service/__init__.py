"""The daemon: durable store, REST API, tokens and roles."""
