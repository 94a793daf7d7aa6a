"""The shared vocabulary: clusters, jobs, allocations, events, units, errors. Nothing here does I/O or reads a clock."""
