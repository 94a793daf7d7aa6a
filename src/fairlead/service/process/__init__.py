"""The processes of a running service: the daemon with its API, the supervised scheduler, and the live demo."""
