"""Jobs as processes of this machine, on its own GPUs or on slots that emulate some."""
