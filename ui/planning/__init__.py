"""The Plan page: purchases, sweeps, quotas, mid-run switch, backtest."""
