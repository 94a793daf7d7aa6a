"""Verbs; no logic."""
