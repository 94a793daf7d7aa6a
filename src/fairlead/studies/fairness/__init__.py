"""How fair a division on paper is, and how fair a run was."""
