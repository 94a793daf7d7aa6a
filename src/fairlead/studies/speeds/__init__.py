"""How fast jobs are: measured by running them, or learnt during a run."""
