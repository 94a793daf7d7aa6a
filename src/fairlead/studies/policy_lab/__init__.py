"""Policies of a user's own: load them and check that they keep the rules."""
