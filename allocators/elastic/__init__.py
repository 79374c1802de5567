"""Policies that choose how many GPUs a job has."""
