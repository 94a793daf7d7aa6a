"""Why a job waits, runs, was stopped or ended, and what would help it."""
