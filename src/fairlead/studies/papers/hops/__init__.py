"""Hops: its experiments and its claims."""
