"""Backtests: how well a simulated policy reproduces the recorded waits."""
