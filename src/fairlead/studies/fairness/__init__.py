"""The fairness of a theoretical division, and of a run."""
