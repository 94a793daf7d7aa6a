"""One file per workload format: recognises it, divides it into records, and reads a record as a row."""
