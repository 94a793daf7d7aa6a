"""Simulated worlds: rounds/ on a virtual clock, tasks/ for single tasks, and the ground truth that policies do not see."""
