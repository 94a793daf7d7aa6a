"""A user's own policies: load them, and check that they obey the rules."""
