"""The commands, without logic of their own."""
