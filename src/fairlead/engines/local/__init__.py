"""Runs jobs as processes of this machine, on its own GPUs or on emulated ones."""
