"""An engine on a virtual clock, and the ground truth that policies do not see."""
