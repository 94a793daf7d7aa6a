"""OEF (Middleware 2024): its experiments and its claims."""
