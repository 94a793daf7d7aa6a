"""Journals read back: folded into a state, or decided again."""
