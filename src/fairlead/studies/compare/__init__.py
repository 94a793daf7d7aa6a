"""Comparisons: many runs under the same rules, their records, and the result."""
