"""What `import fairlead` offers to a notebook, and what the command line runs: functions with the options as keywords."""
