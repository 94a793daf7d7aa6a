"""How good start estimates are: simulated runs whose later part is hidden from the estimate and then compared."""
