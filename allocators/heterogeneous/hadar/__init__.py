"""Hadar and HadarE: prices of GPUs by type and node, and copies of jobs."""
