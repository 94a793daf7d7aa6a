"""One file per workload format: how to know it, how to cut it into records, how to read a record as a row."""
