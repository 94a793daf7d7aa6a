"""The worker side, for training scripts. It needs nothing but the standard library."""
