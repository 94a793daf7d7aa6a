"""Benchmarks: CPU seconds of one thread, printed with the command that made each."""
