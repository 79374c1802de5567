"""Runs under way: in this process, in workers of this machine, or on Dask; queued, watched and
cancelled.
"""
