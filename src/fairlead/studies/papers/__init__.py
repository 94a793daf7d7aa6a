"""The papers' experiments, reproduced, with the papers' numbers next to ours."""
