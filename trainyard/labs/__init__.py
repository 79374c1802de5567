"""Replays of papers, lessons, and backtests against the recorded schedule."""
