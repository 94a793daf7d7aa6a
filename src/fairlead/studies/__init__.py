"""Whole runs and what is read from them."""
