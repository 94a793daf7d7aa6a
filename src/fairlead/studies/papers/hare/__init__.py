"""Hare: its experiments and its claims."""
