"""Slurm as sites run it."""
