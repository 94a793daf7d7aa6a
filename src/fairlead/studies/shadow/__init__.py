"""What Slurm did next to what a policy would have done, from the record of a watching service."""
