"""Documents that define runs: scenarios, studies, sweeps, searches, and their checks."""
