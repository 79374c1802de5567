"""Batches over many settings: sweeps, size searches, and their results."""
