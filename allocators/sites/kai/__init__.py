"""The KAI scheduler: queues with quotas, fair shares beyond them, and taking back what was lent."""
