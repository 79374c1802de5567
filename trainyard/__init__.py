"""The application layer: scenarios, runs, results, comparison and the command line, without a browser."""
