"""One simulated run, many of them in parallel, and the store of those that are finished."""
