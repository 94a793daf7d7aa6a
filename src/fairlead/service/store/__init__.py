"""Everything on disk, and all SQL: the state directory, its two databases, what is written and read there."""
