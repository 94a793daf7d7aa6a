"""The simulator of single tasks: the compiled loops, schedules from rules, and runs whose journals record averages."""
