"""Runs jobs that only take time, for rehearsals and load tests without GPUs."""
