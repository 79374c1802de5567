"""Measurements: `python -m benchmarks` runs them all, `python -m benchmarks kernel` one group.
Nothing here is a timed test.
"""

import os

# As in worker processes: with threads of their own, small products of matrices take nine times as
# long where the cores are busy. Before NumPy is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
