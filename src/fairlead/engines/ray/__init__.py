"""Leases as placement groups of a Ray cluster, with one actor on each node that starts the processes of the job."""
