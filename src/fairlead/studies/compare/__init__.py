"""Many runs under the same rules: which, where, kept, and what comes of them."""
