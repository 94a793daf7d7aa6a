"""The simulator of rounds: an engine on a virtual clock, its faults, and what measuring new models costs."""
