"""Checks before a run: policies that cannot run, missing data, and suggestions."""
