"""The scheduler core: fold events, decide (pure), journal, the one loop."""
