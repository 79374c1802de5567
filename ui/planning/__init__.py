"""The Plan page: capacity, sweeps, what-if slider, quotas, mid-run switch, backtest."""
