"""Queue policies: orders, backfilling, priority preemption and wrappers of policies."""
