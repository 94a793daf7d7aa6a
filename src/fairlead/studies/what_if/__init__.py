"""Questions about the future: simulations from a folded state, with or without changes to it."""
