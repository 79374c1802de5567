"""Results of stored runs: comparisons, groups, time windows, backtest verdicts and exports."""
