"""The Plan page: the fewest nodes for a target, sweeps, and what if from here on."""
