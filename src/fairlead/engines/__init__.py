"""Live engines: the loop of `rounds/` over real processes."""
