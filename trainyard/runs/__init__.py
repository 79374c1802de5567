"""Executes scenarios: in this process, in worker processes or on Dask, with a fair queue."""
