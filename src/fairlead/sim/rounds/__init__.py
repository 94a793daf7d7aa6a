"""The simulator of rounds: an engine on a virtual clock, its faults, and the cost of measuring new models."""
