"""FFT (ICS 2025): its experiments and its claims."""
