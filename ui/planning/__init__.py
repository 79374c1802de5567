"""The Plan page: capacity, sweeps, quotas, mid-run switch, backtest."""
