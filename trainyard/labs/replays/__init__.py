"""Replays of published comparisons: papers as data, their runs and results."""
