"""Complete runs, and what is computed from them."""
