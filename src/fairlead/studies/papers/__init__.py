"""The papers' experiments run again, and their numbers beside ours."""
