"""Solvers behind a small typed face, fairness formulas and metrics. Pure: arrays in, arrays out."""
