"""Fairlead schedules deep-learning training on mixed GPU clusters: fast, and provably fair."""

__version__ = "0.1.0"
