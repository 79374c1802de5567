"""KAI Scheduler: queues with quotas, fair shares over quota, and reclaim."""
