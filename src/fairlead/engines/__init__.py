"""The live engine, which runs the loop of `rounds/` over real processes, and its runners."""
