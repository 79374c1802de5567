"""Measurements: `python -m benchmarks` runs them all, `python -m benchmarks kernel` one group.
Nothing here is a timed test.
"""
