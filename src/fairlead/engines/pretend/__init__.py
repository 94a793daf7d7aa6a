"""Jobs that only take time: rehearsals and load tests without GPUs."""
