"""Shares to whole GPUs with memory, grants to nodes, and what a move must earn."""
