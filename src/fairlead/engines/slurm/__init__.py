"""Slurm: reading what its commands print, and running leases as its jobs."""
