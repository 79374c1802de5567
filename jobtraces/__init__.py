"""Any file to jobs: readers and recipes of trace formats, and generators of workloads."""
