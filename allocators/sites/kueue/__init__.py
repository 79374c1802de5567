"""Kueue: quotas of queues that lend to one another, read from the YAML of a site."""
