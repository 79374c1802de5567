"""Kueue: cluster queues with quotas and borrowing, configured by the YAML of a site."""
