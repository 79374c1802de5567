"""A second way to run what needs no general simulator: rules of queues over arrays, in one loop."""
