"""Capacity planning: which GPUs to buy or retire next, from simulated futures and from what a GPU is worth."""
