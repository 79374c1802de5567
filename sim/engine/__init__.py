"""One run: its loop and agenda, running jobs, holdings, failures, the view and the record."""
