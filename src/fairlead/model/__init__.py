"""The vocabulary: clusters, jobs, allocations, events, units, errors. No I/O and no clock."""
