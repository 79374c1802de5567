"""Check against the past: how far a simulated policy reproduces the waits that were recorded."""
