"""Schedulers that sites run: Slurm, Kueue and KAI, from their own configuration files."""
